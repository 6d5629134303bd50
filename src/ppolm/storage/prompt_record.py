"""A record of the prompts that a run or reward model held out and trained on, since data files may change later."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from ppolm.data.prompts import Prompt, as_prompt
from ppolm.errors import DataError, RunFolderError
from ppolm.storage.atomic import write_file

HELD_OUT = "held_out.jsonl"
"""The held-out prompts with their columns, one JSON object per line."""
TRAINED_ON = "trained_on.txt"
"""A digest of every prompt that was trained on, one per line: enough to recognise a prompt."""


def write_held_out(folder: Path, prompts: Sequence[Prompt]) -> None:
    """Record the held-out prompts."""
    _write(folder / HELD_OUT, (json.dumps(as_row(prompt), ensure_ascii=False, default=str) for prompt in prompts))


def write_trained_on(folder: Path, keys: Iterable[bytes]) -> None:
    """Record which prompts were trained on."""
    _write(folder / TRAINED_ON, (key.hex() for key in sorted(set(keys))))


def read_held_out(run: Path) -> list[Prompt]:
    """The prompts that a run held out."""
    path = run / HELD_OUT
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        return [as_prompt(json.loads(line), f"{path}, line {i},") for i, line in enumerate(lines, 1) if line]
    except FileNotFoundError:
        raise RunFolderError(
            f"Run {run} does not say which prompts it held out: it was made by an earlier ppolm. Give --prompts."
        ) from None
    except (OSError, ValueError, DataError) as error:
        raise RunFolderError(f"{path} cannot be read: {error} Give --prompts.") from error


def read_trained_on(folder: Path) -> set[bytes]:
    """Keys of the prompts that a run or reward model was trained on; empty if there is no record."""
    try:
        return {bytes.fromhex(line) for line in (folder / TRAINED_ON).read_text(encoding="ascii").split()}
    except (OSError, ValueError):
        return set()


def as_row(prompt: Prompt) -> dict[str, object]:
    """A prompt as a data row that loads as the same prompt."""
    column = "prompt" if isinstance(prompt.content, str) else "messages"
    return {**prompt.columns, column: prompt.content}


def _write(path: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    try:
        write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise RunFolderError(f"{path} could not be written: {error}. Make room, or choose another folder.") from error
