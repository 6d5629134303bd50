"""What each faster way gives: a PPO step with all of them, and without each in turn, interleaved.

python -m bench.fast_paths                       all of them, in cases A, B with 4 samples and the top 2 layers, F and T
python -m bench.fast_paths --cases A --rounds 3  one case, more often

A figure of 1.20 says that a step takes 1.20 times as long without it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from bench.cases import CASES, Case
from bench.machine import busy_programs
from bench.sides import ROOT, run
from ppolm.config.model_settings import FastPath

HABITS = ("kept_memory", "chunked_attention", "streamed_logits", "sampler_logprobs")
WAYS = (*(path for path in get_args(FastPath) if path != "library_cache"), *HABITS)
"""The library's cache is what a model without the slot sampler falls back on, and no way of its own here."""
DEFAULT = ("A", "B", "B, both", "F", "T, K = 4, top 8")
PHASES = ("generation", "scoring", "optimisation", "total")
PAYS = 1.05
"""A way that gives less than this everywhere is not worth its code."""


def measure(case: Case, ways: Sequence[str], rounds: int, threads: int) -> dict[str, dict[str, float]]:
    """How many times as long each phase of a step takes without each way: the median of the rounds' ratios."""
    flags = [*case.flags, *case.ours, "--steps", str(case.steps), "--threads", str(threads)]
    ratios: dict[str, dict[str, list[float]]] = {way: {phase: [] for phase in PHASES} for way in ways}
    for _ in range(rounds):
        for way in ways:
            # Beside each one a step with all of them: what else the machine does changes by the minute.
            pair = [run("ours", [*flags, *more]) for more in ([], ["--without", way])]
            if any("failed" in one for one in pair):
                continue
            whole, less = (one["best_step_s"] for one in pair)
            for phase in PHASES:
                ratios[way][phase].append(less[phase] / whole[phase])
    return {
        way: {phase: round(statistics.median(values), 2) for phase, values in found.items() if values}
        for way, found in ratios.items()
    }


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """A row per way, a column per case: the whole step, and the phase that gains most."""
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


def main() -> None:
    """Measure and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--cases", nargs="+", default=list(DEFAULT), choices=[case.name for case in CASES])
    flags.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    flags.add_argument("--rounds", type=int, default=1)
    flags.add_argument("--threads", type=int, default=2)
    flags.add_argument("--output", type=Path, default=ROOT / "bench" / "fast_paths.json")
    given = flags.parse_args()
    busy = busy_programs()
    if busy:
        print(f"warning: other programs are busy, so timings mean little: {busy}", file=sys.stderr)
    results: dict[str, Any] = {}
    for case in CASES:
        if case.name in given.cases:
            print(f"{case.name}: {case.what}", file=sys.stderr, flush=True)
            results[case.name] = measure(case, given.ways, given.rounds, given.threads)
            given.output.write_text(json.dumps(results, indent=1))
    print(table(results))
    idle = [way for way in given.ways if all(one.get(way, {}).get("total", 9) < PAYS for one in results.values())]
    print(f"Less than {PAYS:g} everywhere: {', '.join(idle) or 'none'}")


if __name__ == "__main__":
    main()
