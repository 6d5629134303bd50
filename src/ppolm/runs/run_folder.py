"""runs/<name>/: configuration, metrics, samples, token tables, checkpoints and the best adapter."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ppolm.config import PPOConfig
from ppolm.config.paths import absolute
from ppolm.config.start import START
from ppolm.errors import RunFolderError
from ppolm.hooks.run_control import Change
from ppolm.ranks import Ranks
from ppolm.storage.atomic import explained, tidy, verify_folder, write_file, write_folder
from ppolm.storage.claim import Claim
from ppolm.storage.code_consent import seal
from ppolm.storage.metrics_log import append_line
from ppolm.storage.stored_run import holds_run, read_run_config
from ppolm.token_attribution import SAPairs
from ppolm.token_attribution.sa_pairs_io import to_parquet

log = logging.getLogger(__name__)
IN_USE = "Wait until it ends, stop it, or choose another run_name for a run of its own."
"""What to do if another run holds the folder."""


class RunFolder:
    """The only writer of a run's folder, for as long as it holds the claim."""

    def __init__(self, claim: Claim, config: PPOConfig, ranks: Ranks | None = None) -> None:
        """``ranks``: of several processes only the first writes; what must not fail raises on all of them."""
        self.claim, self.path, self.config = claim, claim.folder, config
        self.ranks = ranks or Ranks()

    def create(self) -> None:
        """Begin a new run in the folder; raises if it already holds one."""
        tidy_run(self.claim)
        refuse_used_folder(self.path)
        with explained(self.path, "start it again"):
            write_file(self.path / "config.yaml", self.config.to_yaml)
            (self.path / "checkpoints").mkdir(exist_ok=True)
        seal(self.path, self.config)

    def keep_start(self, fill: Callable[[Path], None]) -> None:
        """Copy what the run starts from into its folder, which needs no other one from then on."""
        self.ranks.do_once(lambda: self._write(self.path / START, fill))
        self.config = replace(self.config, start_from=absolute(str(self.path / START)))
        with explained(self.path, "start it again"):
            self.ranks.do_once(lambda: write_file(self.path / "config.yaml", self.stored_config.to_yaml))

    @property
    def stored_config(self) -> PPOConfig:
        """The configuration as the run stores it: its own copy of its start has no path, so that it can be moved."""
        own = self.config.start_from is not None and Path(self.config.start_from) == Path(
            absolute(str(self.path / START))
        )
        return replace(self.config, start_from=START) if own else self.config

    def reopen(self) -> None:
        """Resume the run in the folder; changed settings are stored for the next resume."""
        with explained(self.path, f"resume: {self.resume_command}"):
            if read_run_config(self.path) != self.config:
                write_file(self.path / "config.yaml", self.stored_config.to_yaml)
        seal(self.path, self.config)

    @property
    def resume_command(self) -> str:
        """The command that resumes this run."""
        return f"ppolm train --resume {self.path}"

    # ---- logs, samples and tables: a failed write never stops training ----------------------------------------------

    def log_metrics(self, metrics: Mapping[str, Any], kind: str = "train") -> None:
        """Append one line to metrics.jsonl."""
        self._observe("metrics", lambda: append_line(self.path / "metrics.jsonl", {"kind": kind, **metrics}))

    def log_change(self, step: int, change: Change, after: str) -> None:
        """Append a line to metrics.jsonl about a setting that has another value after this step or its evaluation."""
        row = {"kind": "change", "step": step, "after": after, **asdict(change)}
        self._observe("metrics", lambda: append_line(self.path / "metrics.jsonl", row))

    def note(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write facts about the run to a JSON file of their own, atomically: others may be reading it."""

        def write() -> None:
            text = json.dumps(facts, indent=1)
            write_file(self.path / f"{name}.json", lambda file: file.write_text(text, encoding="utf-8"))

        self._observe(name, write)

    def log_samples(self, step: int, samples: Sequence[Mapping[str, Any]], kind: str = "train") -> None:
        """Append prompts with their responses and rewards to samples.jsonl."""

        def write() -> None:
            for sample in samples:
                append_line(self.path / "samples.jsonl", {"kind": kind, "step": step, **sample})

        self._observe("samples", write)

    def write_table(self, step: int, pairs: SAPairs, **notes: Any) -> None:
        """Write the whole table of a step as Parquet."""

        def write() -> None:
            (self.path / "table").mkdir(exist_ok=True)
            path = self.path / "table" / f"step-{step:06d}.parquet"
            write_file(path, lambda part: to_parquet(pairs, part, step=step, **notes))  # others read while we write

        self._observe("table", write)

    def _observe(self, what: str, write: Callable[[], None]) -> None:
        if not self.ranks.first:
            return
        try:
            write()
        except Exception as error:  # a full disk or a broken logger must not end a training run
            log.warning("%s of this step could not be written: %s", what, error)

    # ---- checkpoints and best/: a failed write is an error ----------------------------------------------------------

    def save_checkpoint(self, step: int, fill: Callable[[Path], None]) -> Path:
        """Write checkpoints/step-NNNNNN atomically, then delete the oldest ones beyond keep_checkpoints."""
        path = self.path / "checkpoints" / f"step-{step:06d}"

        def write() -> None:
            self._write(path, fill)
            for old in self.checkpoints()[: -self.config.keep_checkpoints]:
                shutil.rmtree(old)

        self.ranks.do_once(write)
        return path

    def checkpoints(self) -> list[Path]:
        """Checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*"))

    def save_best(self, fill: Callable[[Path], None]) -> None:
        """Replace best/."""
        self.ranks.do_once(lambda: self._write(self.path / "best", fill))

    def _write(self, path: Path, fill: Callable[[Path], None]) -> None:
        self.claim.check()
        with explained(path, f"resume: {self.resume_command}"):
            write_folder(path, fill)

    def check_result(self) -> None:
        """Raise unless the claim still holds and best/ is intact."""

        def check() -> None:
            self.claim.check()
            verify_folder(self.path / "best")

        self.ranks.do_once(check)


def tidy_run(claim: Claim) -> None:
    """Clean up what a killed process left behind in a run folder."""
    for folder in (claim.folder, claim.folder / "checkpoints", claim.folder / "table"):
        tidy(folder)


def refuse_used_folder(path: Path) -> None:
    """Raise if the folder of a new run holds anything but a start that has saved nothing."""
    if path.is_dir() and holds_run(path):
        hint = f"continue it with --resume {path}" if any(path.glob("checkpoints/step-*")) else "remove it"
        raise RunFolderError(f"Run folder {path} already holds a run. Choose another run_name, or {hint}")
    names = {file.name for file in path.iterdir()} if path.is_dir() else set()
    if "config.yaml" not in names and any(not name.startswith(".") for name in names):
        raise RunFolderError(f"Folder {path} is not empty and is not a run folder. Choose another run_name.")
