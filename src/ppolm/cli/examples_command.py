"""``ppolm examples DIR``."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import tyro

from ppolm.cli.settings import parse
from ppolm.errors import ConfigError

PACKAGE = Path(__file__).resolve().parent.parent
SHIPPED = ("README.md", "configs", "docs", "examples")
"""What is copied: from ppolm/shipped in the wheel, from the root of a checkout."""

NEXT = """Next:
  cd {folder}
  ppolm train --config configs/own-reward.yaml --model-name embedded --max-steps 4
  ppolm data check examples/comparisons.jsonl
  ppolm reward --model-name embedded --data examples/comparisons.jsonl --output runs/my-reward
README.md says what follows; your model's name or folder takes the place of embedded."""


@dataclass(frozen=True)
class ExamplesArguments:
    """Copy the examples, configs and documents that come with ppolm into a folder. Nothing there is overwritten."""

    folder: tyro.conf.Positional[str]
    """Folder to copy into; it is made if it does not exist."""


def main(argv: list[str]) -> None:
    """Copy, and print what to do next."""
    folder = Path(parse(ExamplesArguments, "ppolm examples", argv).folder).expanduser()
    copy_examples(folder)
    print(f"Copied to {folder}: {', '.join(SHIPPED)}.\n{NEXT.format(folder=folder)}")


def copy_examples(folder: Path) -> None:
    """Copy all of it, or raise before anything is copied."""
    source = PACKAGE / "shipped"
    source = source if source.is_dir() else PACKAGE.parent.parent
    absent = [name for name in SHIPPED if not (source / name).exists()]
    if absent:
        raise ConfigError(f"This ppolm came without {', '.join(absent)}. Install it from its wheel, or use a checkout.")
    present = [name for name in SHIPPED if (folder / name).exists()]
    if present:
        raise ConfigError(f"{folder} already holds {', '.join(present)}, which are left alone. Give a new folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in SHIPPED:
            if (source / name).is_dir():
                shutil.copytree(source / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source / name, folder / name)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error}. Give another folder.") from error
