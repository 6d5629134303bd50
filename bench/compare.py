"""Ours and the peer on the same shapes, in turns, each in an environment of its own.

make bench                      all cases
make bench FLAGS=--quick        two small ones
make bench FLAGS="--cases F G"
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from bench.cases import CASES, QUICK, Case
from bench.machine import busy_programs, gemm_gflops
from bench.operations import Work
from bench.shapes import parser as side_parser
from ppolm.base_setup.cpu_bfloat16 import make_bfloat16_safe

ROOT = Path(__file__).resolve().parent.parent
UV = shlex.split(os.environ.get("UV", "uv"))
PEER = [*UV, "run", "--no-project", "--quiet", "--with", "trl==1.12.0", "--with", "peft", "--with", "torch"]
PHASES = ("generation", "scoring", "optimisation", "total")


def run(side: str, flags: list[str]) -> dict[str, Any]:
    """One program, its JSON line; what it says on the way is shown."""
    command = [sys.executable] if side == "ours" else [*PEER, "python"]
    module = "bench.ours" if side == "ours" else "bench.trl_ppo"
    print(f"  {side} ...", file=sys.stderr, flush=True)
    answer = subprocess.run([*command, "-m", module, *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode:
        return {"failed": answer.returncode}
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def compare(case: Case, rounds: int, threads: int) -> dict[str, Any]:
    """Both sides in turns; the best step of each, and the ratio by phase."""
    print(f"{case.name}: {case.what}", file=sys.stderr, flush=True)
    common = [*case.flags, "--steps", str(case.steps), "--threads", str(threads)]
    found: dict[str, list[dict[str, Any]]] = {"peer": [], "ours": []}
    for _ in range(rounds):
        found["peer"].append(run("peer", common))
        found["ours"].append(run("ours", [*common, *case.ours]))
    row: dict[str, Any] = {"case": case.name, "what": case.what, "target": case.target, "runs": found}
    if any("failed" in one for runs in found.values() for one in runs):
        return row
    for side, runs in found.items():
        row[side] = min((one["best_step_s"] for one in runs), key=lambda seconds: seconds["total"])
        row[f"{side}_gib"] = max(one["peak_rss_gib"] for one in runs)
    row["ratio"] = {phase: round(row["peer"][phase] / row["ours"][phase], 2) for phase in PHASES}
    return row


def limit_shares(case: Case, seconds: dict[str, float], gflops: float, recomputed: bool) -> dict[str, float]:
    """Operations per second of scoring and training, as a share of the fastest matrix product."""
    given = side_parser(None).parse_args([*case.flags, *case.ours])
    prompt = (given.shortest + given.longest) / 2
    sizes = (given.shape, prompt, given.response, given.batch, given.samples)
    work = Work(*sizes, given.epochs, given.layers, recomputed)
    return {
        "scoring": round(work.scoring() / seconds["scoring"] / 1e9 / gflops, 2),
        "training": round(work.training() / seconds["optimisation"] / 1e9 / gflops, 2),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The comparison as Markdown."""
    lines = ["| case | peer s | ours s | ratio | at least | generation | scoring | update | peer GiB | ours GiB |"]
    lines.append("|---|" + "---:|" * 9)
    for row in rows:
        if "ratio" not in row:
            lines.append(f"| {row['case']} | failed | | | | | | | | |")
            continue
        ratio = row["ratio"]
        cells = [f"{row['peer']['total']:.2f}", f"{row['ours']['total']:.2f}", f"**{ratio['total']}**"]
        cells += [str(row["target"]), *(str(ratio[phase]) for phase in PHASES[:3])]
        cells += [f"{row['peer_gib']:.1f}", f"{row['ours_gib']:.1f}"]
        lines.append(f"| {row['case']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--cases", nargs="+", choices=[case.name for case in CASES], help="default: all")
    flags.add_argument("--quick", action="store_true")
    flags.add_argument("--rounds", type=int, default=1, help="how often the sides take turns")
    flags.add_argument("--threads", type=int, default=2)
    flags.add_argument("--output", type=Path, default=ROOT / "bench" / "results.json")
    given = flags.parse_args()
    names = QUICK if given.quick else given.cases
    cases = [case for case in CASES if names is None or case.name in names]
    busy = busy_programs()
    if busy:
        print(f"warning: other programs are busy, so timings mean little: {busy}", file=sys.stderr)
    make_bfloat16_safe()  # what it sets in the environment holds for both sides
    dtypes = {case.name: side_parser(None).parse_args(case.flags).dtype for case in cases}
    limits = {name: gemm_gflops(getattr(torch, name), given.threads) for name in sorted(set(dtypes.values()))}
    rows = []
    for case in cases:
        row = compare(case, given.rounds, given.threads)
        if "ours" in row:
            recomputed = row["runs"]["ours"][0]["recomputed"]
            row["limit_shares"] = limit_shares(case, row["ours"], limits[dtypes[case.name]], recomputed)
        rows.append(row)
        given.output.write_text(json.dumps({"gemm_gflops": limits, "busy": busy, "cases": rows}, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
