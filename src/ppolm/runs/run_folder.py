"""runs/<name>/: configuration, metrics, samples, token tables, checkpoints and the best adapter."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppolm.config import PPOConfig
from ppolm.errors import ConfigError, RunFolderError
from ppolm.runs.atomic import recover_folder, verify_folder, write_folder
from ppolm.token_attribution import SAPairs
from ppolm.token_attribution.sa_pairs_io import to_parquet

log = logging.getLogger(__name__)

MAY_CHANGE = frozenset(
    {"output_dir", "run_name", "prompts", "eval_prompts", "num_epochs", "max_steps", "device"}
    | {"checkpoint_every", "keep_checkpoints", "table_every", "samples_per_step", "tensorboard", "patience"}
)
"""Settings that a resumed run may change: they move where and how long it runs, not the numbers of a step.
(The prompts themselves are compared by their content.)"""


class RunFolder:
    """The one writer of a run's folder."""

    def __init__(self, path: Path, config: PPOConfig) -> None:
        self.path, self.config = path, config
        self.failures = 0
        self._tensorboard: Any = None

    @classmethod
    def create(cls, path: Path, config: PPOConfig) -> RunFolder:
        """A new folder; one that already holds a run is left alone."""
        if path.is_dir() and any(path.iterdir()):
            raise RunFolderError(
                f"Run folder {path} already holds a run. Choose another run_name, or continue it with --resume {path}"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            config.to_yaml(path / "config.yaml")
        except OSError as error:
            raise RunFolderError(f"Run folder {path} cannot be written: {error}. Choose another output_dir.") from error
        return cls(path, config)

    @classmethod
    def open(cls, path: Path, config: PPOConfig) -> RunFolder:
        """An existing folder, to continue; the configuration must be the one it was started with."""
        saved = read_run_config(path)
        changed = [
            f"{name} {old!r} -> {new!r}"
            for (name, old), new in zip(saved.to_dict().items(), config.to_dict().values(), strict=True)
            if old != new and name not in MAY_CHANGE
        ]
        if changed:
            raise RunFolderError(
                f"Run {path} was started with another configuration: {'; '.join(changed)}. Resume it with its own "
                "settings, or start a new run."
            )
        recover_folder(path / "best")
        return cls(path, config)

    # ---- what others look at: never stops training ----------------------------------------------------------------

    def log_metrics(self, metrics: Mapping[str, Any], kind: str = "train") -> None:
        """Append one line to metrics.jsonl and the numbers to TensorBoard."""

        def write() -> None:
            append_line(self.path / "metrics.jsonl", {"kind": kind, **metrics})
            if self.config.tensorboard:
                self._log_tensorboard(metrics, kind)

        self._observe("metrics", write)

    def _log_tensorboard(self, metrics: Mapping[str, Any], kind: str) -> None:
        if self._tensorboard is None:
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(self.path / "tensorboard"))
        for name, value in metrics.items():
            if isinstance(value, (int, float)) and math.isfinite(value) and name != "step":
                self._tensorboard.add_scalar(f"{kind}/{name}", value, int(metrics["step"]))

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
            to_parquet(pairs, self.path / "table" / f"step-{step:06d}.parquet", step=step, **notes)

        self._observe("table", write)

    def _observe(self, what: str, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:  # a full disk or a broken viewer must not cost a training run
            self.failures += 1
            log.warning("%s of this step could not be written: %s", what, error)

    def close(self) -> None:
        """Flush what is buffered."""
        if self._tensorboard is not None:
            self._observe("TensorBoard events", self._tensorboard.close)

    # ---- what a run lives on: errors are errors -------------------------------------------------------------------

    def save_checkpoint(self, step: int, fill: Callable[[Path], None]) -> Path:
        """Write checkpoints/step-NNNNNN whole, then drop the oldest ones beyond keep_checkpoints."""
        path = self.path / "checkpoints" / f"step-{step:06d}"
        write_folder(path, fill)
        for old in self.checkpoints()[: -self.config.keep_checkpoints]:
            shutil.rmtree(old)
        return path

    def checkpoints(self) -> list[Path]:
        """Checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*"))

    def save_best(self, fill: Callable[[Path], None]) -> None:
        """Replace best/."""
        write_folder(self.path / "best", fill)


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Append one JSON line. A line that a crash cut off is closed first, so that it stays alone in its damage."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps({name: _finite(value) for name, value in row.items()}, ensure_ascii=False).encode() + b"\n")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_metrics(run: str | Path, kind: str = "train") -> list[dict[str, Any]]:
    """The metrics of a run by step. A step that was run again after a resume counts once, with its last line."""
    rows: dict[float, dict[str, Any]] = {}
    path = Path(run) / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # cut off by a crash
        if row.pop("kind", None) == kind:
            rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]


def read_run_config(path: Path) -> PPOConfig:
    """The configuration a run was started with."""
    if not (path / "config.yaml").is_file():
        raise RunFolderError(f"{path} is not a run folder: it has no config.yaml. Give a folder that ppolm train wrote.")
    try:
        return PPOConfig.from_yaml(path / "config.yaml")
    except ConfigError as error:
        raise RunFolderError(f"{path}/config.yaml cannot be used: {error}") from error


def find_checkpoint(path: Path) -> tuple[Path, Path]:
    """Run folder and checkpoint of a path that names either: the newest checkpoint, if it is a run. It is verified."""
    run, checkpoint = path, None
    if path.parent.name == "checkpoints":
        run, checkpoint = path.parent.parent, path
        if not path.is_dir():
            raise RunFolderError(f"Checkpoint {path} does not exist.")
    else:
        read_run_config(path)
        found = sorted((path / "checkpoints").glob("step-*"))
        if not found:
            raise RunFolderError(f"Run {path} has no checkpoint to go on from. Start a new run.")
        checkpoint = found[-1]
    try:
        verify_folder(checkpoint)
    except RunFolderError as error:
        others = [other for other in sorted(checkpoint.parent.glob("step-*")) if other != checkpoint]
        hint = f"Resume from an earlier one: --resume {others[-1]}" if others else "Start a new run."
        raise RunFolderError(f"Checkpoint {error} {hint}") from None
    return run, checkpoint
