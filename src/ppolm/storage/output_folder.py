"""The output folder of SFT and reward-model training while it is in the making: its settings, then checkpoints."""

from __future__ import annotations

import dataclasses
import shutil
import signal
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from ppolm.config import RewardConfig, SFTConfig, SupervisedConfig
from ppolm.config.paths import did_you_mean
from ppolm.errors import ConfigError, RunFolderError
from ppolm.storage.atomic import explained, tidy, write_file
from ppolm.storage.claim import Claim, refuse_claimed
from ppolm.storage.code_consent import SEAL_FILE, seal
from ppolm.storage.refuse_changes import refuse_changes
from ppolm.storage.stop_signals import Stopped

SETTINGS: dict[type[SupervisedConfig], str] = {SFTConfig: "sft-settings.yaml", RewardConfig: "reward-settings.yaml"}
"""What an unfinished training was started with, by the command that did."""
CHECKPOINT, DONE = "checkpoint", "training.json"
IN_USE = "Wait until it ends, stop it, or give --output with another folder."

S = TypeVar("S", bound=SupervisedConfig)


def read_settings(kind: type[S], folder: Path) -> S:
    """What an interrupted training was started with; its output is the folder, wherever that is now."""
    if not (folder / SETTINGS[kind]).is_file():
        if (folder / DONE).is_file():
            _remove_remains(folder)
            raise RunFolderError(f"{folder} is finished: there is nothing to resume. It is ready to use.")
        others = [file.removesuffix("-settings.yaml") for file in SETTINGS.values() if (folder / file).is_file()]
        hint = f" It is one of `ppolm {others[0]}`." if others else did_you_mean(folder)
        found = f"{folder} holds no interrupted training of this kind (no {SETTINGS[kind]})."
        raise RunFolderError(found + (hint or " Give the folder of --output."))
    return dataclasses.replace(kind.from_yaml(folder / SETTINGS[kind]), output=str(folder))


def _remove_remains(folder: Path) -> None:
    """Remove the checkpoint of a finished training that was killed just before it could do so itself."""
    if (folder / CHECKPOINT).is_dir():
        with Claim(folder, "Wait until it ends."):
            tidy(folder)
            shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)


class OutputFolder:
    """The folder of a training's result, claimed as long as the ``with`` block runs.

    That the result can be written there is checked before the training, not after it.
    """

    def __init__(self, config: SupervisedConfig, path: Path, resume: Path | None) -> None:
        self.config, self.path, self.resume = config, path, resume
        self._claim: Claim | None = None

    def __enter__(self) -> OutputFolder:
        if self.resume is not None and self.path.resolve() != self.resume.resolve():
            raise ConfigError(f"--resume {self.resume} continues in its own folder. Leave --output out.")
        refuse_claimed(self.path, IN_USE)  # first: whatever else there is to say about it may change any moment
        self._refuse()  # before a lock is put into somebody's folder
        self._claim = Claim(self.path, IN_USE)
        try:
            tidy(self.path)
            self._refuse()  # its last owner may have finished in the meantime
        except BaseException:
            self._claim.release()
            raise
        return self

    def _refuse(self) -> None:
        """Raise unless there is a training to resume, or a place for a new one."""
        if self.resume is not None:
            refuse_changes(read_settings(type(self.config), self.resume).to_dict(), self.config, self.resume)
        else:
            refuse_results(self.path, {SETTINGS[type(self.config)], SEAL_FILE})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._claim is not None:
            self._claim.release()
        if isinstance(error, KeyboardInterrupt):
            number = error.number if isinstance(error, Stopped) else signal.SIGINT
            done = error.done if isinstance(error, Stopped) else ""
            begun = (self.path / SETTINGS[type(self.config)]).is_file()
            raise Stopped(number, self.path if begun else None, done or self._done()) from None

    def _done(self) -> str:
        """How far an interrupted training has come, by what it has written."""
        if (self.path / DONE).is_file():
            return "after the training; what is still to come is its report"
        return "after its last checkpoint" if (self.path / CHECKPOINT).is_dir() else "before its first update"

    def begin(self, config: SupervisedConfig) -> Path:
        """Note the settings, now that data and model are good, so that --resume finds them; the checkpoint's folder."""
        with explained(self.path, "start again"):
            write_file(self.path / SETTINGS[type(config)], config.to_yaml)
        seal(self.path, config)
        return self.path / CHECKPOINT

    def finish(self) -> None:
        """Make sure that the result is there, and remove what only an unfinished training needs: the settings first.

        A crash after that leaves a finished training and a checkpoint that nobody needs.
        """
        assert self._claim is not None
        self._claim.check()
        (self.path / SETTINGS[type(self.config)]).unlink(missing_ok=True)
        shutil.rmtree(self.path / CHECKPOINT, ignore_errors=True)


def claim_result(folder: Path) -> Claim:
    """The right to write a result into a folder that is new or empty."""
    refuse_claimed(folder, IN_USE)
    refuse_results(folder)
    claim = Claim(folder, IN_USE)
    try:
        refuse_results(folder)
    except BaseException:
        claim.release()
        raise
    return claim


def refuse_results(folder: Path, beginnings: Collection[str] = ()) -> None:
    """Raise if there is anything in the place of a new result but the ``beginnings`` of one that has saved nothing."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {"a file"}
    if any(not name.startswith(".") and name not in beginnings for name in names):
        hint = f", or resume it: --resume {folder}" if names & {*beginnings} else ""
        raise ConfigError(f"{folder} already exists and is not an empty folder. Give --output with a new one{hint}.")
