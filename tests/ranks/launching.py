"""Jobs of several processes for tests, started as a user starts them: by torchrun or accelerate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}

TRAIN = [
    *("--model-name", "embedded", "--batch-size", "8", "--minibatch-size", "4", "--max-new-tokens", "12"),
    *("--max-eval-prompts", "6", "--eval-every", "2", "--checkpoint-every", "1", "--no-tensorboard", "--threads", "1"),
]
"""Flags of a small run of the embedded model."""


def command(processes: int, module: str, arguments: Sequence[str | Path]) -> list[str]:
    """One process is started without a launcher."""
    python = [sys.executable, "-m"]
    launcher = [*python, "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    return [*(python if processes == 1 else launcher), module, *map(str, arguments)]


def start(processes: int, module: str, *arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """A job that runs."""
    return _start(command(processes, module, arguments), cwd)


def _start(asked: list[str], cwd: Path | None) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")} | QUIET
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(asked, text=True, cwd=cwd, env=environment, **streams)  # type: ignore[call-overload]


def run(processes: int, module: str, *arguments: str | Path, cwd: Path | None = None) -> tuple[int, str]:
    """A job from its start to its end: its exit code and everything that it printed."""
    return _finish(start(processes, module, *arguments, cwd=cwd))


def accelerate(options: Sequence[str], *arguments: str | Path, cwd: Path) -> tuple[int, str]:
    """ppolm as a job of accelerate launch: its exit code and everything that it printed."""
    launcher = [sys.executable, "-m", "accelerate.commands.launch", *options, "--module", "ppolm"]
    return _finish(_start([*launcher, *map(str, arguments)], cwd))


def _finish(started: subprocess.Popen[str]) -> tuple[int, str]:
    with started as job:
        try:
            output, _ = job.communicate(timeout=400)
        finally:
            job.kill()
        return job.returncode, output


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
