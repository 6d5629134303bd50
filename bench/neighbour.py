"""What one busy program beside us costs: a PPO step alone, and beside a loop that keeps one core busy.

python -m bench.neighbour

`before` is how libgomp waits unless told otherwise, with a thread per core; `ours` is what ppolm sets.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.machine import busy_programs
from bench.sides import run

SHAPES = ("tiny", "embedded", "small")
FLAGS = ["--batch", "8", "--epochs", "2", "--steps", "4", "--response", "32"]
DEFAULT_SPINS = "300000"


@contextmanager
def neighbour() -> Iterator[None]:
    """A program that does nothing but compute."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def seconds(shape: str, ours: bool) -> float:
    """The best of a few steps."""
    os.environ.pop("GOMP_SPINCOUNT", None)
    if not ours:
        os.environ["GOMP_SPINCOUNT"] = DEFAULT_SPINS
    threads = "auto" if ours else str(os.cpu_count() or 1)
    return float(run("ours", ["--shape", shape, *FLAGS, "--threads", threads])["best_step_s"]["total"])


def main() -> None:
    """Measure in turns and print a table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rounds", type=int, default=2)
    flags.add_argument("--shapes", nargs="+", default=list(SHAPES))
    given = flags.parse_args()
    busy = busy_programs()
    if busy:
        print(f"warning: other programs are busy, so timings mean little: {busy}", file=sys.stderr)
    print("| model | quiet, before | quiet, ours | beside, before | beside, ours | quiet: ours/before | beside/quiet |")
    print("|---|---|---|---|---|---|---|")
    for shape in given.shapes:
        best: dict[tuple[bool, bool], float] = {}
        for _ in range(given.rounds):
            for ours in (False, True):
                best[ours, False] = min(best.get((ours, False), 1e9), seconds(shape, ours))
                with neighbour():
                    best[ours, True] = min(best.get((ours, True), 1e9), seconds(shape, ours))
        before, now, before_beside, beside = (
            best[key] for key in ((False, False), (True, False), (False, True), (True, True))
        )
        cells = [f"{value:.3f} s" for value in (before, now, before_beside, beside)]
        print(f"| {shape} | {' | '.join(cells)} | {now / before:.2f} | {beside / now:.2f} |", flush=True)


if __name__ == "__main__":
    main()
