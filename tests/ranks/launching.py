"""Jobs of several processes for tests, started by torchrun, as a user starts them.

A process spends far more time on imports than on a tiny run. So unless a test asks for a cold start, torchrun and the
processes that it starts are forks of a process that has imported everything: the same launcher with its options
``--start-method fork --run-path``, and the same program.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Self

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}
PROGRAM = ROOT / "tests" / "warm_program.py"

TRAIN = [
    *("--model-name", "embedded", "--batch-size", "8", "--minibatch-size", "4", "--max-new-tokens", "12"),
    *("--max-eval-prompts", "6", "--eval-every", "2", "--checkpoint-every", "1", "--no-tensorboard", "--threads", "1"),
]
"""Flags of a small run of the embedded model."""


class Job:
    """A job that runs: its launcher, or its only process."""

    def __init__(self, process: subprocess.Popen[bytes] | multiprocessing.process.BaseProcess, output: Path) -> None:
        self.process, self.output = process, output

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.end(30)
        self.output.unlink()

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self.process.poll() if isinstance(self.process, subprocess.Popen) else self.process.exitcode

    def printed(self) -> str:
        """Everything that it has printed so far."""
        return self.output.read_text(errors="replace")

    def end(self, seconds: float) -> tuple[int, str]:
        """Wait for its end: its exit code and everything that it printed."""
        until = time.monotonic() + seconds
        while self.code is None:
            assert time.monotonic() < until, f"still running after {seconds} s:\n{self.printed()}"
            time.sleep(0.02)
        return self.code, self.printed()

    def workers(self) -> list[int]:
        """The processes that the launcher has started, in their order."""
        command = ["ps", "-o", "pid=", "--sort", "start_time,pid", "--ppid", str(self.process.pid)]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return [int(pid) for pid in found.split()]


def start(processes: int, module: str, *arguments: str | Path, cwd: Path | None = None, cold: bool = False) -> Job:
    """Start one; ``cold``: by the commands that a user types."""
    handle, name = tempfile.mkstemp()
    words = [*launcher(processes, cold), module, *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")} | QUIET
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    if cold:
        command = [sys.executable, "-m", *words]
        started = subprocess.Popen(command, stdout=handle, stderr=handle, cwd=cwd, env=environment)
        os.close(handle)
        return Job(started, Path(name))
    os.close(handle)
    process = forks().Process(target=in_fork, args=(words, name, str(cwd or ROOT), environment))
    process.start()
    return Job(process, Path(name))


def launcher(processes: int, cold: bool) -> list[str]:
    """The words before the program's; one process needs none."""
    if processes == 1:
        return []
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [*torchrun, "-m"] if cold else [*torchrun, "--start-method=fork", "--run-path", str(PROGRAM)]


@cache
def forks() -> multiprocessing.context.ForkServerContext:
    """Makes processes that are forks of one with everything imported, started once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.warm_imports"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        for name, value in QUIET.items():
            patch.setenv(name, value)
        forkserver.ensure_running()
    return context


def in_fork(words: list[str], output: str, cwd: str, environment: dict[str, str]) -> None:
    """What a fork does: become the program."""
    from tests import warm_imports, warm_program  # imported already: otherwise it would not be warm

    assert warm_imports
    handle = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    warm_program.main(*words)


def run(
    processes: int, module: str, *arguments: str | Path, cwd: Path | None = None, cold: bool = False
) -> tuple[int, str]:
    """A job from its start to its end: its exit code and everything that it printed."""
    with start(processes, module, *arguments, cwd=cwd, cold=cold) as job:
        return job.end(400)


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
