"""What is exported: the best policy of a run, one of its checkpoints, or the result of ``ppolm sft``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppolm.config import ModelSettings, PPOConfig, SFTConfig
from ppolm.embedded import model_path
from ppolm.errors import ConfigError, PpolmError, RunFolderError
from ppolm.names import EMBEDDED
from ppolm.storage.atomic import verify_named_files
from ppolm.storage.claim import refuse_claimed
from ppolm.storage.code_consent import ask_consent
from ppolm.storage.output_folder import DONE, SETTINGS
from ppolm.storage.stored_run import find_best, find_checkpoint, read_run_config, run_above, run_of, run_of_best

WRITTEN = "Wait until it ends, or stop it; then try again."


@dataclass(frozen=True)
class Source:
    """Weights to export, and where they come from."""

    folder: Path
    """The run, or the folder of ``ppolm sft``."""
    config: ModelSettings
    adapter: Path | None
    """The PEFT folder; None if the folder itself is a whole model."""
    about: dict[str, Any]
    """What the folder of ``ppolm sft`` says of its training; of a run, what its best policy says of itself."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.folder.resolve().name

    @property
    def is_run(self) -> bool:
        """Whether PPO made it."""
        return isinstance(self.config, PPOConfig)

    @property
    def model(self) -> str:
        """The folder or Hub name of the model that is loaded first: the base, or the model that SFT made of it."""
        return str(self.folder) if self.adapter is None else model_path(self.config.model_name)

    @property
    def base_is_local(self) -> bool:
        """Whether the base is a folder, which means nothing on another machine."""
        return self.config.model_name == EMBEDDED or Path(self.config.model_name).expanduser().is_absolute()

    @property
    def base_label(self) -> str:
        """What the base is called in a text for others: its name, never a path of this machine."""
        return Path(self.config.model_name).name if self.base_is_local else self.config.model_name


def find_source(path: Path, argv: Sequence[str] = (), command: str = "export") -> Source:
    """What is at a path, verified; raises for anything that cannot be exported now.

    ``argv`` are the flags that were typed after ``command``: whoever names code there agrees to it.
    """
    if (path / DONE).is_file() or any((path / name).is_file() for name in SETTINGS.values()):
        return _supervised(path, argv, command)
    path = run_of_best(path)
    run = run_of(path)
    _refuse_models(run)
    config = read_run_config(run)
    refuse_claimed(run, WRITTEN)
    ask_consent(run, config, argv, command, rewards=False)
    if run != path:
        return Source(run, config, find_checkpoint(path, resumes=False)[1] / "policy", {"step": _step(path)})
    best = find_best(run)
    return Source(run, config, best, _read(best / "best.json"))


def _refuse_models(path: Path) -> None:
    """Raise for what other programs load already: a bare model, a finished export, an adapter from elsewhere."""
    kinds = {"config.json": "a model", "adapter_config.json": "an adapter"}
    kind = next((kind for name, kind in kinds.items() if (path / name).is_file()), None)
    kind = "a model" if str(path) == EMBEDDED and not path.exists() else kind
    if kind is not None and not (path / "config.yaml").is_file() and not run_above(path):
        raise ConfigError(
            f"{path} is {kind}, not a run: other programs load it as it is, so there is nothing to export. Give a run "
            "of ppolm train, one of its checkpoints, or the folder of ppolm sft."
        )


def _supervised(path: Path, argv: Sequence[str], command: str) -> Source:
    """The result of ``ppolm sft``, whole; a reward model has no text to give."""
    refuse_claimed(path, WRITTEN)
    if not (path / DONE).is_file():
        raise RunFolderError(f"{path} holds a training that is not finished. Resume it: ppolm sft --resume {path}")
    about = _read(path / DONE)
    settings = about.get("config")
    if not isinstance(settings, dict) or "train" not in settings:
        raise ConfigError(
            f"{path} is not a language model: it was not made by `ppolm sft`. Give a run of ppolm train, or the folder "
            "of ppolm sft."
        )
    verify_named_files(path)
    try:
        config = SFTConfig.from_dict(settings)
    except PpolmError as error:
        raise RunFolderError(f"{path / DONE} cannot be used: {error}") from error
    ask_consent(path, config, argv, command, rewards=False)
    return Source(path, config, path if config.train == "adapter" else None, about)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}. The folder is damaged.") from error
    return found if isinstance(found, dict) else {}


def _step(checkpoint: Path) -> int | None:
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdigit() else None
