"""The cost of one busy program on the same machine: PPO steps alone, and beside a loop that keeps one core busy.

python -m bench.neighbour

`before` is libgomp's default waiting with one thread per core; `ours` is what ppolm does. Both stay loaded and take
steps in turns: a machine's speed changes by the minute, so only adjacent steps can be compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.machine import busy_programs
from bench.sides import ROOT
from bench.tables import markdown

SHAPES = ("tiny", "embedded", "small")
PROGRAM = [sys.executable, "-m", "bench.ours"]
FLAGS = ["--batch", "8", "--epochs", "2", "--steps", "1000000", "--response", "32", "--paced"]
WAITING = {"before": "300000", "ours": None}
"""GOMP_SPINCOUNT of both sides: libgomp's default, set explicitly so that ppolm leaves it alone; and unset."""
SETTLE = 0.05
"""Seconds between two steps, because threads of the last one may still be spinning."""


class Side:
    """A process that takes one step on request."""

    def __init__(self, name: str, shape: str) -> None:
        threads = "auto" if name == "ours" else str(os.cpu_count() or 1)
        environment = {key: value for key, value in os.environ.items() if key != "GOMP_SPINCOUNT"}
        spins = WAITING[name]
        if spins is not None:
            environment["GOMP_SPINCOUNT"] = spins
        line = [*PROGRAM, "--shape", shape, *FLAGS, "--threads", threads]
        self.program = subprocess.Popen(
            line,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def step(self) -> float:
        """Take a step; returns its seconds."""
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        time.sleep(SETTLE)
        self.program.stdin.write("\n")
        self.program.stdin.flush()
        return float(self.program.stdout.readline())

    def end(self) -> None:
        """Stop the process."""
        self.program.kill()
        self.program.wait()


@contextmanager
def neighbour() -> Iterator[None]:
    """A process that keeps one core busy."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def measure(shape: str, steps: int) -> dict[tuple[str, bool], float]:
    """Median seconds per step of both sides, alone (False) and beside a busy program (True)."""
    seconds: dict[tuple[str, bool], list[float]] = {(name, busy): [] for name in WAITING for busy in (False, True)}
    with ExitStack() as stack:
        sides = {name: Side(name, shape) for name in WAITING}
        for side in sides.values():
            stack.callback(side.end)
            side.step()  # the first is slower than the rest
        for busy in (False, True):
            with neighbour() if busy else ExitStack():
                for _ in range(steps):
                    for name, side in sides.items():
                        seconds[name, busy].append(side.step())
    return {key: statistics.median(values) for key, values in seconds.items()}


def main() -> None:
    """Measure and print a table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--steps", type=int, default=30)
    flags.add_argument("--shapes", nargs="+", default=list(SHAPES))
    given = flags.parse_args()
    busy = busy_programs()
    if busy:
        print(f"warning: other programs are busy, so timings mean little: {busy}", file=sys.stderr)
    rows = []
    for shape in given.shapes:
        found = measure(shape, given.steps)
        cells = [f"{found[name, busy]:.3f} s" for busy in (False, True) for name in WAITING]
        quiet, beside = found["ours", False], found["ours", True]
        rows.append([shape, *cells, f"{quiet / found['before', False]:.2f}", f"{beside / quiet:.2f}"])
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ["quiet, before", "quiet, ours", "beside, before", "beside, ours", "quiet: ours/before", "beside/quiet"]
    print(markdown(["model", *head], rows))


if __name__ == "__main__":
    main()
