"""The output folder of SFT and reward-model training while it is in the making: its settings, then checkpoints."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import TypeVar

from ppolm.config import RewardConfig, SFTConfig, SupervisedConfig
from ppolm.config.places import did_you_mean
from ppolm.errors import ConfigError, RunFolderError
from ppolm.runs.refuse_changes import refuse_changes

SETTINGS: dict[type[SupervisedConfig], str] = {SFTConfig: "sft-settings.yaml", RewardConfig: "reward-settings.yaml"}
"""What an unfinished training was started with, by the command that did."""
CHECKPOINT, DONE = "checkpoint", "training.json"
COMPUTED = frozenset({"threads", "plain", "without"})
"""By which code a training is computed."""
MAY_CHANGE = frozenset(
    {"output", "device", "checkpoint_every", "max_skipped_updates", "patience", "test_data"} | COMPUTED
)
"""Settings that a resumed training may change: none of them changes its numbers, patience only where they end."""

S = TypeVar("S", bound=SupervisedConfig)


def read_settings(kind: type[S], folder: Path) -> S:
    """What an interrupted training was started with; its output is the folder, wherever that is now."""
    if (folder / DONE).is_file():
        raise RunFolderError(f"{folder} is finished: there is nothing to go on with. It is ready to use.")
    if not (folder / SETTINGS[kind]).is_file():
        others = [file.removesuffix("-settings.yaml") for file in SETTINGS.values() if (folder / file).is_file()]
        hint = f" It is one of `ppolm {others[0]}`." if others else did_you_mean(folder)
        found = f"{folder} holds no interrupted training of this kind (no {SETTINGS[kind]})."
        raise RunFolderError(found + (hint or " Give the folder of --output."))
    return dataclasses.replace(kind.from_yaml(folder / SETTINGS[kind]), output=str(folder))


def prepare_output(config: SupervisedConfig, folder: Path, resume: Path | None) -> Path:
    """Make sure, before the training and not after it, that its result has a place."""
    if resume is not None:
        if folder.resolve() != resume.resolve():
            raise ConfigError(f"--resume {resume} goes on in its own folder. Leave --output out.")
        refuse_changes(read_settings(type(config), resume).to_dict(), config, resume, MAY_CHANGE)
        return resume
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        hint = f", or go on with it: --resume {folder}" if (folder / SETTINGS[type(config)]).is_file() else ""
        raise ConfigError(f"{folder} already exists and is not an empty folder. Give --output with a new one{hint}.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SETTINGS[type(config)]).touch()
        (folder / SETTINGS[type(config)]).unlink()
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error}. Give --output with another folder.") from error
    return folder


def begin_training(config: SupervisedConfig, folder: Path) -> Path:
    """Note the settings, now that data and model are good, so that --resume finds them; the folder for checkpoints."""
    config.to_yaml(folder / SETTINGS[type(config)])
    return folder / CHECKPOINT


def end_training(config: SupervisedConfig, folder: Path) -> None:
    """Remove what only an unfinished training needs."""
    shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
    (folder / SETTINGS[type(config)]).unlink(missing_ok=True)
