"""Run the demo with five seeds and write the table in docs/demo.md. Every seed is reported.

make seeds
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import torch

from ppolm.cli.demo_command import DemoArguments, interval_text, run_demo
from ppolm.cli.main import prepare_output

SEEDS = range(5)
PAGE = Path(__file__).parent.parent / "docs" / "demo.md"
BEGIN, END = "<!-- seeds: begin -->", "<!-- seeds: end -->"


def main() -> None:
    """Run, and replace the table between the two markers."""
    prepare_output()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        answers = [run_demo(DemoArguments(seed=seed, output_dir=folder))[0] for seed in SEEDS]
    page = PAGE.read_text(encoding="utf-8")
    new = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{table(answers)}\n{END}", page, flags=re.DOTALL)
    PAGE.write_text(new, encoding="utf-8")
    print(table(answers))


def table(answers: list[dict[str, Any]]) -> str:
    """A Markdown table with one row per seed."""
    heads = (
        *("seed", "gold before", "gold after", "gain", "gap closed"),
        *("greedy before", "greedy after", "reward before", "reward after"),
        *("KL", "wrong facts before", "wrong facts after", "length before", "length after", "verdict", "seconds"),
    )
    lines = [f"| {' | '.join(heads)} |", "|---:" * len(heads) + "|"]
    for answer in answers:
        sampled, greedy = answer["sampled"], answer["greedy"]
        cells = (
            str(answer["seed"]),
            f"{sampled['gold']['before']['mean']:.3f}",
            interval_text(sampled["gold"]["after"]),
            interval_text(sampled["gold"]["change"], "+"),
            f"{answer['gap_closed']:.2f}",
            *(f"{greedy['gold'][key]['mean']:.3f}" for key in ("before", "after")),
            *(f"{sampled['reward'][key]['mean']:.2f}" for key in ("before", "after")),
            f"{answer['kl']:.1f}",
            *(f"{sampled['wrong_facts'][key]:.2f}" for key in ("before", "after")),
            *(f"{sampled['length'][key]:.1f}" for key in ("before", "after")),
            answer["verdict"],
            f"{answer['seconds']:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
