"""Two processes that want one folder: exactly one goes ahead, the other is told so, and nothing is damaged.

python -m attack.two_writers                     10 pairs of each kind
python -m attack.two_writers --count 3 --seed 1
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from attack.child import Child, start
from attack.kills import PATIENCE, undisturbed
from attack.trainings import Training, trainings


@dataclass
class Figures:
    """What became of some pairs."""

    training: str
    kind: str
    pairs: int = 0
    one_went_ahead: int = 0
    told: int = 0
    """Losers that ended with one sentence and exit 1."""
    whole: int = 0
    """Pairs whose folder is in the end bit for bit that of an undisturbed training."""
    problems: list[str] = field(default_factory=list)


def attack(training: Training, kind: str, count: int, seed: int, place: Path) -> Figures:
    """Start pairs at moments that differ by up to the whole length of a training."""
    draw, figures = random.Random(f"{training.name} {kind} {seed}"), Figures(training.name, kind)
    whole, seconds = undisturbed(training, place)
    for number in range(count):
        folder = place / f"{training.name}-{kind}-{number:03d}"
        if kind == "resume":
            make_unfinished(training, folder)
        arguments = training.resume(folder) if kind == "resume" else training.begin(folder)
        first = start(arguments, place / f"{folder.name}.first")
        # Half of them at the same time, where both may find the folder free.
        time.sleep(0.0 if number % 2 == 0 else draw.uniform(0.0, 0.6 * seconds))
        second = start(arguments, place / f"{folder.name}.second")
        judge((first, second), training, folder, whole, figures)
    return figures


def make_unfinished(training: Training, folder: Path) -> None:
    """A training that was killed after a checkpoint, in the folder."""
    child = start(training.begin(folder), folder)
    while not training.saved_step(folder):
        if (status := child.wait(0.01)) is not None:
            raise AssertionError(f"it ended with {status} before it had saved anything:\n{child.said}")
    child.send(9)
    child.wait()


def judge(pair: tuple[Child, Child], training: Training, folder: Path, whole: Path, figures: Figures) -> None:
    """Wait for both, and compare what is there then."""
    figures.pairs += 1
    ends = [(child.wait(PATIENCE), child.said) for child in pair]
    winners = [said for status, said in ends if status == 0]
    losers = [said for status, said in ends if status == 1]
    figures.one_went_ahead += len(winners) == 1
    sentences = ("is being written to by process", "already holds a run", "is finished", "is not an empty folder")
    told = [said for said in losers if any(words in said for words in sentences) and "Traceback" not in said]
    figures.told += len(told) == 1
    different = training.differences(folder, whole)
    figures.whole += not different
    if len(winners) != 1 or len(told) != 1 or different:
        statuses = [(status, said[-300:]) for status, said in ends]
        figures.problems.append(f"{folder.name}: {statuses} {different}")
    shutil.rmtree(folder, ignore_errors=True)


def run(count: int, seed: int, place: Path, names: tuple[str, ...] = ("train", "sft")) -> list[Figures]:
    """All figures: two starts with one name, and two that resume one training."""
    every, found = trainings(place), []
    for name in names:
        for kind in ("start", "resume"):
            found.append(attack(every[name], kind, count, seed, place))
            print(line(found[-1]), flush=True)
    return found


HEAD = """| training | both | pairs | exactly one went ahead | the other was told, exit 1 | result bit-equal |
|---|---|---:|---:|---:|---:|"""


def line(figures: Figures) -> str:
    """A row of the table, and what went wrong."""
    cells = (figures.training, figures.kind, figures.pairs, figures.one_went_ahead, figures.told, figures.whole)
    return "\n".join([f"| {' | '.join(map(str, cells))} |", *figures.problems])


def main() -> None:
    """Attack, print a table, and fail if anything was harmed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10, help="pairs of each kind")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(HEAD)
    with tempfile.TemporaryDirectory() as place:
        found = run(arguments.count, arguments.seed, Path(place))
    raise SystemExit(any(figures.problems for figures in found))


if __name__ == "__main__":
    main()
