"""Measure the recipe of docs/second-rounds.md: judge, reward model, PPO, in three rounds on the embedded world.

python -m scripts.second_rounds          the recipe with three seeds, and other ways to do rounds two and three

Writes the tables of that page. Every seed is reported. It takes a quarter of an hour on one thread.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ppolm.cli.main import prepare_output
from ppolm.cli.main import run as ppolm
from ppolm.data.load_rows import load_prompts
from ppolm.data.prompts import Prompt
from ppolm.measures.intervals import Interval, cluster_interval
from ppolm.ppo_trainer.run_comparison import RunComparison

SEEDS = range(3)
ROUNDS = (1, 2, 3)
STALE = "the reward model of round 1 in all rounds"
VARIANTS = {
    "`--start-reference policy`": "--start-reference policy",
    "`--no-start-value`": "--no-start-value",
    STALE: "",
}
"""What is changed in the second and third round, and the flags of ``ppolm train`` that do it."""
PAGE = Path(__file__).parent.parent / "docs" / "second-rounds.md"


@dataclass(frozen=True)
class Measured:
    """The policy of a round on held-out prompts."""

    number: int
    """The round; 0 for the SFT model."""
    gold: Interval
    rise: Interval | None
    """Of gold over the round before, paired by prompt."""
    judgements: int
    seconds: float


def commands(number: int, seed: int = 0, variant: str = "") -> list[str]:
    """The commands of a round; the page shows those of the first and the second with seed 0."""
    draw, last = 10 * seed + number, f"runs/round-{number - 1}"
    answers = "--model-name embedded" if number == 1 else f"--policy {last}"
    start = "--model-name embedded --max-steps 6" if number == 1 else f"--start-from {last}"
    changed = f" {VARIANTS[variant]}" if number > 1 and variant and variant != STALE else ""
    judge = [
        f"ppolm feedback study round-{number} {answers} --prompts embedded --count 200 --seed {draw}",
        f"ppolm feedback label --study round-{number} --judge gold",
        f"ppolm feedback export judged-{number}.jsonl --rule latest",
        f"ppolm reward --model-name embedded --data judged-{number}.jsonl --output runs/reward-{number} --seed {draw}",
    ]
    if number > 1 and variant == STALE:
        return [f"ppolm train {start} --run-name round-{number} --seed {draw}"]
    train = f"ppolm train {start} --reward-model runs/reward-{number} --run-name round-{number} --seed {draw}{changed}"
    return [*judge, train]


def measured_rounds(seed: int, posts: Sequence[Prompt], variant: str = "") -> Iterator[Measured]:
    """Run the rounds in the current folder, and measure each policy, and before the first the SFT model, on posts."""
    before: list[float] = []
    for number in ROUNDS:
        began = time.monotonic()
        for command in commands(number, seed, variant):
            if status := ppolm(shlex.split(command)[1:]):
                raise SystemExit(f"{command}: exit status {status}")
        seconds = time.monotonic() - began
        runner = RunComparison(Path(f"runs/round-{number}"), judge="gold")
        (compared,) = runner.compare(posts)
        runner.release()
        after = compared.after.scores["judge"]
        if not before:
            before = list(compared.before.scores["judge"])
            yield Measured(0, cluster_interval(before, compared.clusters), None, 0, 0.0)
        rise = cluster_interval(np.subtract(after, before).tolist(), compared.clusters)
        file = Path(f"judged-{number}.jsonl")
        judged = len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0
        yield Measured(number, cluster_interval(after, compared.clusters), rise, judged, seconds)
        before = list(after)


def table(by_seed: dict[int, list[Measured]]) -> str:
    """A row per seed and round."""
    lines = _head("seed", "round", "judgements so far", "gold", "rise over the round before", "seconds")
    for seed, rounds in by_seed.items():
        for one in rounds:
            name = str(one.number) if one.number else "SFT model"
            rise = "" if one.rise is None else _signed(one.rise)
            lines.append(f"| {seed} | {name} | {one.judgements} | {one.gold} | {rise} | {one.seconds:.0f} |")
    return "\n".join(lines)


def variants_table(by_name: dict[str, list[Measured]]) -> str:
    """A row per variant."""
    lines = _head("in rounds 2 and 3", "gold after round 1", "after round 2", "after round 3")
    lines += [f"| {name} | {' | '.join(str(one.gold) for one in rounds[1:])} |" for name, rounds in by_name.items()]
    return "\n".join(lines)


def _head(*cells: str) -> list[str]:
    return [f"| {' | '.join(cells)} |", "|---:" * len(cells) + "|"]


def _signed(change: Interval) -> str:
    return f"{change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"


def write(name: str, text: str) -> None:
    """Replace what stands between two marks of the page."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    page = PAGE.read_text(encoding="utf-8")
    new = re.sub(f"{begin}.*{end}", lambda _: f"{begin}\n{text}\n{end}", page, flags=re.DOTALL)
    PAGE.write_text(new, encoding="utf-8")
    print(text)


def measured_apart(seed: int, posts: Sequence[Prompt], variant: str = "") -> list[Measured]:
    """The rounds in a folder of their own, which is removed."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return list(measured_rounds(seed, posts, variant))
        finally:
            os.chdir(here)


def main() -> None:
    """Run everything, and write both tables."""
    prepare_output()
    torch.set_num_threads(1)
    posts = load_prompts("embedded:test")
    by_seed = {seed: measured_apart(seed, posts) for seed in SEEDS}
    write("rounds", table(by_seed))
    write("variants", variants_table({"the recipe": by_seed[0], **{v: measured_apart(0, posts, v) for v in VARIANTS}}))


if __name__ == "__main__":
    main()
