"""A run at a glance, from its folder alone: for lists of many runs. Nothing is written, nothing large is loaded."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ppolm.config.yaml_io import read_yaml
from ppolm.errors import ConfigError
from ppolm.runs.metrics_tail import Row, sampled_rows
from ppolm.runs.run_status import RunStatus, is_alive, read_object, read_status, utc_time

METRICS = "metrics.jsonl"
MOST_RUNS = 10_000
DEEPEST = 3
"""Folders between the one that is searched and a run."""
RECENT = 20
"""Steps that the time per step is taken from."""


@dataclass(frozen=True)
class RunOverview:
    """What a list of runs shows of one."""

    name: str
    state: str
    """running, finished or stopped."""
    why: str
    """Why it ended, in a few words."""
    verdict: str
    step: int
    total_steps: int
    reward: float | None
    kl: float | None
    best_step: int | None
    best_reward: float | None
    sparkline: tuple[float | None, ...]
    started: str
    age: float
    """Seconds since the run ended or logged anything."""
    seconds_left: float | None
    """Estimated from the last steps; None if it does not run."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def find_runs(folder: Path) -> list[Path]:
    """The run folders at or below a folder, by name. Runs hold no runs, so there is no need to look inside them."""
    return sorted(_find(folder, DEEPEST), key=lambda path: path.name)[:MOST_RUNS]


def _find(folder: Path, depth: int) -> Iterator[Path]:
    if is_run(folder):
        yield folder
        return
    if depth == 0:
        return
    try:
        below = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError:
        return
    for path in below:
        yield from _find(path, depth - 1)


def is_run(folder: Path) -> bool:
    """Whether a folder is a PPO run: supervised training writes other files beside its config.yaml."""
    try:
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    except OSError:
        return False
    return "config.yaml" in names and bool(names & {METRICS, "checkpoints", "status.json"})


def overview(run: Path) -> RunOverview:
    """A run at a glance. Whatever is missing, half-written or damaged is left open."""
    rows, status = sampled_rows(run / METRICS), read_status(run)
    alive = is_alive(run)
    state, why = state_of(run, status, alive)
    last = rows[-1] if rows else {}
    best = read_object(run / "best" / "best.json")
    step = int(last.get("step", 0))
    total = status.total_steps if status else 0
    return RunOverview(
        name=run.name,
        state=state,
        why=why,
        verdict=status.verdict if status else "",
        step=step,
        total_steps=total,
        reward=number(last.get("avg_reward")),
        kl=number(last.get("kl")),
        best_step=None if number(best.get("step")) is None else int(best["step"]),
        best_reward=number(best.get("avg_reward")),
        sparkline=tuple(number(row.get("avg_reward")) for row in rows),
        started=status.started if status else "",
        age=age_of(run, status),
        seconds_left=seconds_left(rows[-RECENT:], total - step) if alive else None,
    )


def outcome(run: RunOverview) -> str:
    """In a word or a few: the verdict; of a run that was stopped, why."""
    return run.why or run.verdict if run.state == "stopped" else run.verdict or run.why


def state_of(run: Path, status: RunStatus | None, alive: bool) -> tuple[str, str]:
    """running, finished or stopped, and why it ended."""
    if alive:
        return "running", ""
    if status is None:  # made before runs had a status
        return ("finished", "") if (run / "report" / "summary.md").is_file() else ("stopped", "no report was written")
    if status.state == "running":
        return "stopped", "its process is gone: killed, or the machine went down"
    if status.state == "interrupted":
        return "stopped", "by a signal (Ctrl-C, SIGTERM)"
    if status.state == "failed":
        return "stopped", status.why or "an error"
    if status.state == "stopped":
        return "stopped", f"by {status.why}" if status.why else "by a callback"
    return "finished", "" if status.state == "finished" else status.state


def read_settings(run: Path) -> dict[str, Any]:
    """The settings of a run as its file has them, whether they can be used or not; empty if it cannot be read."""
    try:
        return read_yaml(run / "config.yaml")
    except ConfigError:
        return {}


def seconds_left(rows: Sequence[Row], steps: int) -> float | None:
    """The mean time of some steps, as often as there are steps left; evaluations come on top."""
    taken = [sum(_seconds(row)) for row in rows]
    taken = [seconds for seconds in taken if seconds > 0]
    return steps * sum(taken) / len(taken) if taken and steps >= 0 else None


def _seconds(row: Row) -> Iterable[float]:
    return (number(value) or 0.0 for name, value in row.items() if name.startswith("seconds/"))


def number(value: Any) -> float | None:
    """A finite number, or None."""
    try:
        usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return float(value) if usable else None


def age_of(run: Path, status: RunStatus | None) -> float:
    """Seconds since the run ended, or else since it logged anything: copied and installed files have other times."""
    ended = utc_time(status.ended) if status else None
    if ended is not None:
        return max(0.0, time.time() - ended.timestamp())
    for path in (run / METRICS, run / "config.yaml", run):
        try:
            return max(0.0, time.time() - path.stat().st_mtime)
        except OSError:
            continue
    return 0.0
