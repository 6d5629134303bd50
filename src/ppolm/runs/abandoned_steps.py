"""Resuming from an earlier checkpoint: files of later steps are moved to abandoned/ instead of being deleted."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Collection
from itertools import count
from pathlib import Path
from typing import Any

from ppolm.errors import RunFolderError
from ppolm.runs.ppo_checkpoint import SCALE
from ppolm.storage.atomic import MANIFEST, sync, verify_folder, write_file, write_folder

log = logging.getLogger(__name__)
ABANDONED = "abandoned"
LOGS = ("samples.jsonl", "metrics.jsonl")


def set_aside(run: Path, checkpoint: Path, step: int, evaluated: Collection[int]) -> Path | None:
    """Restore a run folder to its state at a checkpoint; returns the folder that later files moved to, if any.

    ``evaluated`` are the steps whose evaluations are in the checkpoint. A crash at any point loses nothing, and the run
    can still be resumed: later checkpoints move first, newest to oldest, so that the newest one left always has
    everything that came before it; and ``best`` is compared with the checkpoint's record of it.
    """
    later = [path for path in sorted((run / "checkpoints").glob("step-*"), reverse=True) if _number(path) > step]
    tables = [path for path in sorted((run / "table").glob("step-*.parquet")) if _number(path) > step]
    logs = {name: _parted(run / name, step, evaluated) for name in LOGS}
    best_is_wrong = (run / "best").exists() and not _is_best_of(run / "best", checkpoint, step)
    target = None
    if later or tables or best_is_wrong or any(rest for _, rest in logs.values()):
        target = _new_folder(run / ABANDONED, step)
        for path in later:
            _move(path, target / "checkpoints")
        if best_is_wrong:
            _move(run / "best", target)
    _restore_best(run / "best", checkpoint, evaluated)
    if target is not None:
        if (run / "report").exists():
            _move(run / "report", target)
        for path in tables:
            _move(path, target / "table")
        for name, (kept, rest) in logs.items():
            if rest:
                write_file(target / name, lambda path, rest=rest: path.write_bytes(b"".join(rest)))  # type: ignore[misc]
                write_file(run / name, lambda path, kept=kept: path.write_bytes(b"".join(kept)))  # type: ignore[misc]
    return target


def keep_best(run: Path, checkpoint: Path) -> None:
    """Copy the best policy so far into a checkpoint that is being written, for a resume from it.

    A copy, not a hard link: users may edit or damage files in best/, and the checkpoint must not change with them.
    """
    if (run / "best").is_dir():
        shutil.copytree(run / "best", checkpoint / "best")


def _is_best_of(best: Path, checkpoint: Path, step: int) -> bool:
    """Whether ``best`` is unchanged since the checkpoint was written."""
    if (checkpoint / "best").is_dir():
        return _bytes(best / MANIFEST) == _bytes(checkpoint / "best" / MANIFEST)
    try:  # a run without evaluations, or a checkpoint by an earlier version, which kept no copy
        return int(json.loads((best / "best.json").read_text())["step"]) <= step
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _restore_best(best: Path, checkpoint: Path, evaluated: Collection[int]) -> None:
    if best.exists() or not evaluated:
        return
    source = checkpoint / "best"
    try:
        verify_folder(source)
    except RunFolderError:
        log.warning("%s has no copy of the best policy, so its own policy counts as the best so far.", checkpoint)
        write_folder(best, lambda folder: _own_policy(folder, checkpoint))
        return
    write_folder(best, lambda folder: _copy_all(source, folder))


def _copy_all(source: Path, folder: Path) -> None:
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=lambda *_: {MANIFEST})


def _own_policy(folder: Path, checkpoint: Path) -> None:
    shutil.copytree(checkpoint / "policy", folder, dirs_exist_ok=True)
    shutil.copytree(checkpoint / "value", folder / "value")
    state = json.loads((checkpoint / "state.json").read_text())
    about: dict[str, Any] = {"step": state["step"], "chosen_by": "the checkpoint that the run was resumed from"}
    scale = {"components": {name: state["components"][name] for name in SCALE}}
    (folder / "best.json").write_text(json.dumps(about | scale, indent=1))


def _parted(path: Path, step: int, evaluated: Collection[int]) -> tuple[list[bytes], list[bytes]]:
    """The lines of a log up to a step, and the others."""
    kept: list[bytes] = []
    rest: list[bytes] = []
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        try:
            row = json.loads(line)
            number = row["step"]
            of_evaluation = row.get("kind") == "eval" or row.get("after") == "evaluation"
            known = number <= step and (not of_evaluation or number in evaluated)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            known = True  # cut off by a crash; readers skip it
        (kept if known else rest).append(line)
    return kept, rest


def _new_folder(abandoned: Path, step: int) -> Path:
    abandoned.mkdir(exist_ok=True)
    taken = {path.name.partition("-")[0] for path in abandoned.iterdir()}
    number = next(f"{number:03d}" for number in count(1) if f"{number:03d}" not in taken)
    target = abandoned / f"{number}-after-step-{step:06d}"
    target.mkdir()
    return target


def _move(path: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    path.rename(folder / path.name)
    sync(folder)
    sync(path.parent)


def _number(path: Path) -> int:
    """The step in the name of a checkpoint or table; 0 if there is none."""
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
