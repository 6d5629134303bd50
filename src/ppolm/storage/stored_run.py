"""Finds and verifies what a run has stored: its settings, its checkpoints, its best policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppolm.config import PPOConfig
from ppolm.config.paths import absolute, did_you_mean
from ppolm.config.start import START
from ppolm.config.yaml_io import read_yaml
from ppolm.errors import ConfigError, RunFolderError
from ppolm.storage.atomic import standing_folder, standing_names, verify_folder


def is_start(path: Path) -> bool:
    """Whether a folder is a run's copy of what it started from; a run may have the same name."""
    return path.name == START and (path / "policy").is_dir()


def run_of(path: Path) -> Path:
    """The run folder, given a run, one of its checkpoints, or its copy of what it started from."""
    if is_start(path):
        return path.parent
    return path.parent.parent if path.parent.name == "checkpoints" else path


def run_of_best(path: Path) -> Path:
    """The run folder, given the folder of its best policy; any other path unchanged."""
    is_part = path.name == "best" and (path.parent / "config.yaml").is_file() and not (path / "config.yaml").exists()
    return path.parent if is_part else path


def run_above(path: Path) -> str:
    """A sentence that names the run which a path is a part of; empty if there is none."""
    above = next((folder for folder in [*path.parents][:2] if (folder / "config.yaml").is_file()), None)
    return "" if above is None else f" It is a part of the run {above}: give that."


def read_run_config(path: Path) -> PPOConfig:
    """The configuration a run was started with."""
    if not (path / "config.yaml").is_file():
        raise RunFolderError(
            f"{path} is not a run folder: it has no config.yaml."
            f"{did_you_mean(path) or run_above(path) or ' Give a folder that ppolm train wrote.'}"
        )
    try:
        values = read_yaml(path / "config.yaml")
        if not values:  # every run writes all its settings: defaults would be those of another model
            raise ConfigError("it is empty. Copy the run again.")
        return PPOConfig.from_stored(found_start(values, path))
    except ConfigError as error:
        raise RunFolderError(f"{path}/config.yaml cannot be used: {error}") from error


def holds_run(path: Path) -> bool:
    """Whether a run has saved anything at ``path``; if not, it can simply be started again."""
    return any(path.glob("checkpoints/step-*")) or (path / "best").exists() or (path / "metrics.jsonl").exists()


def found_start(values: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """Stored settings with the path of the run's own copy of its start, which is stored without it: it can be moved."""
    own = values.get("start_from") == START
    return {**values, "start_from": absolute(str(run / START))} if own else dict(values)


def find_checkpoint(path: Path, resumes: bool = True) -> tuple[Path, Path]:
    """Run folder and verified checkpoint, given either; of a run, the newest checkpoint.

    ``resumes``: whether the run is to go on; else the checkpoint's policy is to be used.
    """
    run, checkpoint = run_of(path), path
    if run == path:
        read_run_config(path)
        found = sorted(name for name in standing_names(path / "checkpoints") if name.startswith("step-"))
        if not found:
            raise RunFolderError(f"Run {path} has no checkpoint to resume from. {_again(path)}")
        checkpoint = standing_folder(path / "checkpoints" / found[-1])
    elif not path.is_dir():
        raise RunFolderError(f"Checkpoint {path} does not exist.{did_you_mean(path)}")
    try:
        verify_folder(checkpoint)
    except RunFolderError as error:
        others = [other for other in sorted(checkpoint.parent.glob("step-*")) if other != checkpoint]
        if resumes:
            earlier = f"Resume from an earlier one: --resume {others[-1]}" if others else ""
            hint = earlier or "Start a new run with another run_name."
        else:
            hint = f"Give another one: {others[-1]}" if others else f"Copy it again, or give the run: {run}"
        raise RunFolderError(f"Checkpoint {error} {hint}") from None
    return run, checkpoint


def find_best(run: Path) -> Path:
    """The folder of a run's best policy, verified."""
    read_run_config(run)
    best = standing_folder(run / "best")
    if not best.is_dir():
        raise RunFolderError(
            f"Run {run} has no best/ yet: it was stopped before its first evaluation. Resume it first: ppolm train "
            f"--resume {run}"
        )
    try:
        verify_folder(best)
    except RunFolderError as error:
        raise RunFolderError(f"{error} Copy the run again, or take one of its checkpoints.") from None
    return best


def _again(run: Path) -> str:
    """How to restart a run that cannot be resumed: in its own folder, if nothing would be lost."""
    if holds_run(run):
        return "Start a new run with another run_name."
    parts = ["ppolm train", f"--config {run / 'config.yaml'}", f"--output-dir {run.parent}", f"--run-name {run.name}"]
    return f"It was ended before it had saved anything. Start it again: {' '.join(parts)}"
