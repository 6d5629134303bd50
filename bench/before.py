"""Compare with another checkout: are PPO steps slower than before a change?

git worktree add ../before HEAD~5
python -m bench.before ../before               the two quick cases, taking turns
python -m bench.before ../before --rounds 5

Both run in this environment. A figure of 0.90 means that a step takes 0.90 times as long as before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from bench.cases import QUICK
from bench.machine import busy_programs
from bench.sides import ROOT
from bench.tables import PHASES, markdown


def best_step(checkout: Path, flags: list[str]) -> dict[str, float]:
    """Seconds of the best step with the code of a checkout."""
    line = [sys.executable, "-m", "bench.ours", *flags]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(line, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])["best_step_s"]
    return seconds


def main() -> None:
    """Measure in turns and print a table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("before", type=Path)
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--threads", type=int, default=2)
    given = flags.parse_args()
    busy = busy_programs()
    if busy:
        print(f"warning: other programs are busy, so timings mean little: {busy}", file=sys.stderr)
    sides, rows = {"before": given.before.resolve(), "now": ROOT}, []
    for case in QUICK:
        words = [*case.flags, *case.ours, "--steps", str(case.steps), "--threads", str(given.threads)]
        best: dict[str, dict[str, float]] = {}
        for _ in range(given.rounds):
            for side, checkout in sides.items():
                seconds = best_step(checkout, words)
                if side not in best or seconds["total"] < best[side]["total"]:
                    best[side] = seconds
        ratios = [f"{best['now'][phase] / best['before'][phase]:.2f}" for phase in PHASES]
        rows.append([case.name, *(f"{best[side]['total']:.3f} s" for side in sides), *ratios])
    print(markdown(["case", *sides, *(f"{phase}, now/before" for phase in PHASES)], rows))


if __name__ == "__main__":
    main()
