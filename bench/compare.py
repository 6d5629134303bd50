"""PPO steps of ppolm and of its peer (TRL) on the same shapes, in turns, each in its own environment.

make bench                      everything: all cases, generation alone, growth curves
make bench FLAGS=--quick        two small cases
make bench FLAGS="--cases F G"  these cases
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bench.cases import CASES, GENERATION, QUICK, Case
from bench.growth import CURVES
from bench.machine import busy_programs
from bench.plot import draw
from bench.shapes import LORA_R, model_config
from bench.shapes import parser as side_parser
from bench.sides import ROOT, run
from bench.tables import PHASES, case_table, generation_table, growth_table
from ppolm.config import PPOConfig
from ppolm.estimate.machine import gemm_gflops
from ppolm.estimate.model_shape import shape_of
from ppolm.estimate.operations import Work
from ppolm.kernels.cpu_bfloat16 import make_bfloat16_safe


@functools.cache
def peer(flags: tuple[str, ...], turn: int) -> dict[str, Any]:  # noqa: ARG001 each turn is measured again
    """The peer's figures, shared by cases that differ on our side only."""
    return run("peer", list(flags))


def compare(case: Case, rounds: int, threads: int) -> dict[str, Any]:
    """Both sides in turns; the best step of each, and the ratio by phase."""
    print(f"{case.name}: {case.what}", file=sys.stderr, flush=True)
    common = [*case.flags, "--steps", str(case.steps), "--threads", str(threads)]
    found: dict[str, list[dict[str, Any]]] = {"peer": [], "ours": []}
    for turn in range(rounds):
        found["peer"].append(peer(tuple(common), turn))
        found["ours"].append(run("ours", [*common, *case.ours]))
    row: dict[str, Any] = {"case": case.name, "what": case.what, "target": case.target, "runs": found}
    if any("failed" in one for runs in found.values() for one in runs):
        return row
    for side, runs in found.items():
        row[side] = min((one["best_step_s"] for one in runs), key=lambda seconds: seconds["total"])
        row[f"{side}_gib"] = max(one["peak_rss_gib"] for one in runs)
    row["estimated_gib"] = found["ours"][0]["estimated_gib"]
    row["ratio"] = {phase: round(row["peer"][phase] / row["ours"][phase], 2) for phase in PHASES}
    return row


def limit_shares(case: Case, seconds: dict[str, float], gflops: float, recomputed: bool) -> dict[str, float]:
    """Operations per second of scoring and training, as a share of the fastest matrix product."""
    given, _ = side_parser(None).parse_known_args([*case.flags, *case.ours])
    prompt = (given.shortest + given.longest) / 2
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(model_config(given.shape))
    shape = shape_of(model, PPOConfig(lora_r=LORA_R, trainable_layers=given.layers))
    sizes = (prompt, given.response, given.batch, given.samples, given.epochs)
    work = Work(shape, *sizes, recomputed=recomputed)
    return {
        "scoring": round(work.scoring() / seconds["scoring"] / 1e9 / gflops, 2),
        "training": round(work.training() / seconds["optimisation"] / 1e9 / gflops, 2),
    }


def run_cases(cases: Sequence[Case], rounds: int, threads: int, limits: dict[str, float]) -> Iterator[dict[str, Any]]:
    """The rows of the comparison, one case after the other."""
    for case in cases:
        row = compare(case, rounds, threads)
        if "ours" in row:
            dtype = side_parser(None).parse_args(case.flags).dtype
            recomputed = row["runs"]["ours"][0]["recomputed"]
            row["limit_shares"] = limit_shares(case, row["ours"], limits[dtype], recomputed)
        yield row


def run_growth(threads: int) -> Iterator[dict[str, Any]]:
    """The timings of both sides along every curve."""
    for curve in CURVES:
        print(f"growth: {curve.name}", file=sys.stderr, flush=True)
        points = []
        for value in curve.values:
            flags = [*curve.flags_at(value), "--threads", str(threads)]
            found = {"peer": run("peer", flags)} if curve.peer else {}
            found["ours"] = run(curve.side, flags)
            totals = {side: one["best_step_s"]["total"] for side, one in found.items() if "failed" not in one}
            points.append({"value": value} | {side: curve.figure(total, value) for side, total in totals.items()})
        yield {"name": curve.name, "points": points}


def measure_limits(threads: int) -> dict[str, float]:
    """GFLOPS of the fastest matrix product in each precision."""
    torch.set_num_threads(threads)
    make_bfloat16_safe()  # the environment variables that it sets apply to both sides
    names = ("float32", "bfloat16")
    return {name: gemm_gflops(getattr(torch, name), torch.device("cpu"), seconds=2.0) for name in names}


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--cases", nargs="+", choices=[case.name for case in CASES], help="only these")
    flags.add_argument("--generation", action="store_true", help="only generation beside Hugging Face's generate")
    flags.add_argument("--growth", action="store_true", help="only the growth curves")
    flags.add_argument("--quick", action="store_true", help="only two small cases")
    flags.add_argument("--rounds", type=int, default=1, help="how often the sides take turns")
    flags.add_argument("--threads", type=int, default=2)
    flags.add_argument("--output", type=Path, default=ROOT / "bench" / "results.json")
    given = flags.parse_args()
    everything = not (given.quick or given.cases or given.generation or given.growth)
    cases = QUICK if given.quick else [case for case in CASES if everything or case.name in (given.cases or ())]
    busy = busy_programs()
    if busy:
        print(f"warning: other programs are busy, so timings mean little: {busy}", file=sys.stderr)
    results: dict[str, Any] = {"gemm_gflops": measure_limits(given.threads), "busy": busy}
    print("GFLOPS of the fastest matrix product:", {k: round(v) for k, v in results["gemm_gflops"].items()})

    def keep(name: str, rows: Iterable[dict[str, Any]], table: Callable[[list[dict[str, Any]]], str]) -> None:
        """Write the results after every row, so that an interrupted comparison keeps them."""
        results[name] = []
        for row in rows:
            results[name].append(row)
            given.output.write_text(json.dumps(results, indent=1))
        print(table(results[name]), flush=True)

    if cases:
        keep("cases", run_cases(cases, given.rounds, given.threads, results["gemm_gflops"]), case_table)
    if given.generation or everything:
        found = ({"case": name} | run("generation", more) for name, more in GENERATION.items())
        keep("generation", found, generation_table)
    if given.growth or everything:
        keep("growth", run_growth(given.threads), growth_table)
    picture = given.output.with_suffix(".png")
    draw(results, picture)
    print(f"Written: {given.output}, {picture}")


if __name__ == "__main__":
    main()
