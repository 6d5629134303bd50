"""The output folder of SFT and reward-model training while training runs: its settings, then checkpoints."""

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
from ppolm.ranks import Ranks
from ppolm.storage.atomic import MANIFEST, explained, tidy, write_file
from ppolm.storage.claim import Claim, claim_together, refuse_claimed
from ppolm.storage.code_consent import SEAL_FILE, seal
from ppolm.storage.refuse_changes import refuse_changes
from ppolm.storage.stop_signals import Stopped
from ppolm.storage.stored_run import run_of, run_of_best

SETTINGS: dict[type[SupervisedConfig], str] = {SFTConfig: "sft-settings.yaml", RewardConfig: "reward-settings.yaml"}
"""File with the settings of an unfinished training, by type of configuration."""
CHECKPOINT, DONE = "checkpoint", "training.json"
IN_USE = "Wait until it ends, stop it, or give --output with another folder."

S = TypeVar("S", bound=SupervisedConfig)


def read_settings(kind: type[S], folder: Path) -> S:
    """The settings of an interrupted training; ``output`` is set to the folder's present path."""
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
    """Remove the checkpoint of a finished training that was killed just before it did so itself."""
    if (folder / CHECKPOINT).is_dir():
        with Claim(folder, "Wait until it ends."):
            tidy(folder)
            shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)


class OutputFolder:
    """The folder of a training's result, claimed while the ``with`` block runs.

    Whether the result can be written there is checked before training, not after.
    """

    def __init__(self, config: SupervisedConfig, path: Path, resume: Path | None, ranks: Ranks | None = None) -> None:
        """``ranks``: of several processes the first one claims the folder and writes into it."""
        self.config, self.path, self.resume, self.ranks = config, path, resume, ranks or Ranks()
        self._claim: Claim | None = None

    def __enter__(self) -> OutputFolder:
        self._claim = claim_together(self._take, self.ranks)
        return self

    def _take(self) -> Claim:
        if self.resume is not None and self.path.resolve() != self.resume.resolve():
            raise ConfigError(f"--resume {self.resume} continues in its own folder. Leave --output out.")
        refuse_claimed(self.path, IN_USE)  # first: while it is in use, its contents may change at any moment
        self._refuse()  # before a lock is put into a folder that is not ours
        claim = Claim(self.path, IN_USE)
        try:
            tidy(self.path)
            self._refuse()  # its previous owner may have finished in the meantime
        except BaseException:
            claim.release()
            raise
        return claim

    def _refuse(self) -> None:
        """Raise unless there is a training to resume, or room for a new one."""
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
        """How far an interrupted training got, judging by what it has written."""
        if (self.path / DONE).is_file():
            return "after the training; what is still to come is its report"
        return "after its last checkpoint" if (self.path / CHECKPOINT).is_dir() else "before its first update"

    def begin(self, config: SupervisedConfig) -> Path:
        """Save the settings for --resume, once data and model have loaded; returns the checkpoint folder."""

        def write() -> None:
            with explained(self.path, "start again"):
                write_file(self.path / SETTINGS[type(config)], config.to_yaml)
            seal(self.path, config)

        self.ranks.do_once(write)
        return self.path / CHECKPOINT

    def finish(self) -> None:
        """Check that the folder is still ours, and remove what only an unfinished training needs, settings first.

        A crash after that leaves a finished training with an unneeded checkpoint.
        """
        assert self._claim is not None
        claim = self._claim

        def tidy_up() -> None:
            claim.check()
            (self.path / SETTINGS[type(self.config)]).unlink(missing_ok=True)
            shutil.rmtree(self.path / CHECKPOINT, ignore_errors=True)

        self.ranks.do_once(tidy_up)


def claim_result(folder: Path) -> Claim:
    """Claim a new or empty folder for a result."""
    refuse_claimed(folder, IN_USE)
    refuse_results(folder)
    claim = Claim(folder, IN_USE)
    try:
        refuse_results(folder)
    except BaseException:
        claim.release()
        raise
    return claim


def refuse_sealed(folder: Path) -> None:
    """Raise for a folder inside a checkpoint or a best policy, whose manifest names exactly the files that exist."""
    for above in folder.resolve().parents:
        run = run_of(run_of_best(above))
        if run != above and (above / MANIFEST).is_file() and (run / "config.yaml").is_file():
            raise ConfigError(
                f"{folder} lies in {above}, a part of the run {run.name} that would look damaged with more files in "
                "it. Give --output with a folder elsewhere."
            )


def refuse_results(folder: Path, beginnings: Collection[str] = ()) -> None:
    """Raise if the folder of a new result contains anything but ``beginnings``: files of a training without results."""
    refuse_sealed(folder)
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {"a file"}
    if any(not name.startswith(".") and name not in beginnings for name in names):
        hint = f", or resume it: --resume {folder}" if names & {*beginnings} else ""
        raise ConfigError(f"{folder} already exists and is not an empty folder. Give --output with a new one{hint}.")
