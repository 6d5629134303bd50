"""What each fast path gains: a PPO step with all of them, and without each in turn, interleaved.

python -m bench.fast_paths                       all of them, in every case below (about an hour)
python -m bench.fast_paths --cases A --rounds 3  one case, more often

A figure of 1.20 means that a step takes 1.20 times as long without it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from bench import ours
from bench.cases import CASES, Case
from bench.machine import busy_programs
from bench.sides import ROOT, forked
from ppolm.config.model_settings import FastPath

WAYS = (*(path for path in get_args(FastPath) if path != "library_cache"), *ours.HABITS)
"""Without library_cache: it is only the fallback for models without the slot sampler."""
NEEDS = {"packed_prompts": "--samples", "shared_trunk": "--layers"}
"""Ways that have no effect in a case without this flag."""
DEFAULT = ("A", "B", "B, both", "F", "T, K = 4, top 8")
PHASES = ("generation", "scoring", "optimisation", "total")
BETWEEN = 3
"""How many ways are measured between two runs with all of them."""
PAYS = 1.05
"""A way that gains less than this in every case is not worth its code."""

Seconds = dict[str, float]


def measure(
    case: Case, ways: Sequence[str], rounds: int, measured: Callable[[str | None], Seconds | None]
) -> dict[str, Seconds]:
    """Time of each phase without each way, relative to all of them: best step divided by best step.

    The order alternates between rounds, so that every way is measured in quiet as well as busy moments of the machine.
    """
    flags = [*case.flags, *case.ours]
    acting = [way for way in ways if way not in NEEDS or NEEDS[way] in flags]
    best: dict[str | None, Seconds] = {}
    for turn in range(rounds):
        order: list[str | None] = [*acting] if turn % 2 == 0 else [*acting[::-1]]
        for start in range(0, len(order), BETWEEN):
            for way in (None, *order[start : start + BETWEEN]):
                seconds = measured(way)
                if seconds is not None and (way not in best or seconds["total"] < best[way]["total"]):
                    best[way] = seconds
    return {
        way: {phase: round(best[way][phase] / best[None][phase], 2) for phase in PHASES}
        for way in acting
        if way in best
    }


def best_step(case: Case, steps: int, threads: int) -> Callable[[str | None], Seconds | None]:
    """A function that measures a step of a case without a way; it returns None on failure."""
    flags = [*case.flags, *case.ours, "--steps", str(steps), "--threads", str(threads)]

    def measured(way: str | None) -> Seconds | None:
        seconds = forked(ours.main, [*flags, *(["--without", way] if way else [])]).get("best_step_s")
        print(f"{case.name} without {way}: {seconds}", file=sys.stderr, flush=True)
        return seconds

    return measured


def table(results: dict[str, dict[str, Seconds]]) -> str:
    """One row per way, one column per case: the whole step, and the phase that gains most."""
    lines = ["| without | " + " | ".join(results) + " |", "|---|" + "---|" * len(results)]
    for way in WAYS:
        cells = []
        for found in results.values():
            one = found.get(way)
            if not one:
                cells.append("")
                continue
            phase = max(PHASES[:-1], key=lambda name: one[name])
            cells.append(f"{one['total']:.2f} ({phase} {one[phase]:.2f})")
        if any(cells):
            lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def idle_ways(results: dict[str, dict[str, Seconds]]) -> list[str]:
    """Ways that were measured and do not pay in any case."""
    found = {way: [one[way]["total"] for one in results.values() if one.get(way)] for way in WAYS}
    return [way for way, totals in found.items() if totals and max(totals) < PAYS]


def main() -> None:
    """Measure and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--cases", nargs="+", default=list(DEFAULT), choices=[case.name for case in CASES])
    flags.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    flags.add_argument("--rounds", type=int, default=1)
    flags.add_argument("--steps", type=int, help="of each run, the first not counted unless it is the only one")
    flags.add_argument("--threads", type=int, default=2)
    flags.add_argument("--output", type=Path, default=ROOT / "bench" / "results.fast_paths.json")
    given = flags.parse_args()
    busy = busy_programs()
    if busy:
        print(f"warning: other programs are busy, so timings mean little: {busy}", file=sys.stderr)
    results: dict[str, Any] = {}
    for case in CASES:
        if case.name in given.cases:
            print(f"{case.name}: {case.what}", file=sys.stderr, flush=True)
            measured = best_step(case, given.steps or case.steps, given.threads)
            results[case.name] = measure(case, given.ways, given.rounds, measured)
            given.output.write_text(json.dumps(results, indent=1))
    print(table(results))
    print(f"Less than {PAYS:g} everywhere: {', '.join(idle_ways(results)) or 'none'}")


if __name__ == "__main__":
    main()
