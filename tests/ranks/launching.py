"""Jobs of several processes for tests, started by torchrun or accelerate, as a user starts them.

Unless a test asks for a cold start, torchrun and the processes that it starts are warm (tests/warm.py): it is the same
launcher, with its options ``--start-method fork --run-path``, and the same program.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.warm import QUIET, ROOT, Program, new_file, start_warm

TRAIN = [
    *("--model-name", "embedded", "--batch-size", "8", "--minibatch-size", "4", "--max-new-tokens", "12"),
    *("--max-eval-prompts", "6", "--eval-every", "2", "--checkpoint-every", "1", "--log-to", "--threads", "1"),
]
"""Flags of a small run of the embedded model."""


def start(processes: int, module: str, *arguments: str | Path, cwd: Path = ROOT, cold: bool = False) -> Program:
    """A job that runs: its launcher, or its only process. ``cold``: by the command that a user types."""
    words = [*launcher(processes, cold), module, *map(str, arguments)]
    if cold:
        return _cold(words, cwd)
    output = new_file()
    return start_warm(*words, cwd=cwd, environment=_environment(), out=output, err=output)


def _cold(words: list[str], cwd: Path) -> Program:
    output = new_file()
    with Path(output).open("a") as file:
        command = [sys.executable, "-m", *words]
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=cwd, env=_environment())
    return Program(process, output, output)


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")} | QUIET
    return environment | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def launcher(processes: int, cold: bool) -> list[str]:
    """The words before the program's; one process needs none."""
    if processes == 1:
        return []
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    forking = ["--start-method=fork", "--run-path", str(ROOT / "tests" / "warm_program.py")]
    return [*torchrun, "-m"] if cold else [*torchrun, *forking]


def run(processes: int, module: str, *arguments: str | Path, cwd: Path = ROOT, cold: bool = False) -> tuple[int, str]:
    """A job from its start to its end: its exit code and everything that it printed."""
    with start(processes, module, *arguments, cwd=cwd, cold=cold) as job:
        return job.end(400), job.out


def accelerate(options: Sequence[str], *arguments: str | Path, cwd: Path) -> tuple[int, str]:
    """ppolm as a job of accelerate launch: its exit code and everything that it printed."""
    with _cold(["accelerate.commands.launch", *options, "--module", "ppolm", *map(str, arguments)], cwd) as job:
        return job.end(400), job.out


def workers(job: Program) -> list[int]:
    """The processes that the launcher has started, in their order."""
    command = ["ps", "-o", "pid=", "--sort", "start_time,pid", "--ppid", str(job.pid)]
    return [int(pid) for pid in subprocess.run(command, capture_output=True, text=True).stdout.split()]


def metrics(run_folder: Path) -> list[dict[str, Any]]:
    """What a run has logged, without times."""
    rows = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("seconds")} for row in rows]


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """Whether the numbers of two series of rows are equal up to rounding, and the rest exactly."""
    return len(one) == len(other) and all(
        row.keys() == found.keys()
        and all(_same(value, found[name]) for name, value in row.items() if name != "reasons")
        for row, found in zip(one, other, strict=True)
    )


def _same(one: Any, other: Any) -> bool:
    return bool(one == (pytest.approx(other, rel=1e-4, abs=1e-4, nan_ok=True) if isinstance(one, float) else other))
