"""Two processes that want the same folder: exactly one gets it, the other is told so, and nothing is damaged.

python -m attack.two_writers                     10 pairs of each kind
python -m attack.two_writers --count 3 --seed 1
"""

from __future__ import annotations

import itertools
import math
import random
import shutil
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from attack import table
from attack.child import Child, start
from attack.kills import PATIENCE, undisturbed
from attack.trainings import Training, trainings

CLOCK = 0.01
"""Seconds by which file times are coarser than the clock."""


@dataclass
class Figures:
    """Results of some pairs of processes."""

    training: str
    kind: str
    pairs: int = 0
    at_once: int = 0
    """Pairs in which both wanted the folder at the same time, and exactly one got it."""
    told: int = 0
    """Losers among those that ended with exit 1 and one error line that names the other process."""
    in_turn: int = 0
    """Pairs in which one came after the other had finished and released the folder."""
    together: int = 0
    """Pairs in which both held the folder at the same time, which must never happen."""
    whole: int = 0
    """Pairs whose final folder is bit for bit that of an undisturbed run."""
    problems: list[str] = field(default_factory=list)


def note_claims(file: Path) -> None:
    """Record when this process holds a folder: from the claim until just before it is released."""
    from ppolm.storage.claim import Claim

    take, release = Claim.__init__, Claim.release
    begin = 0.0

    def taken(self: Any, *arguments: Any, **options: Any) -> None:
        nonlocal begin
        take(self, *arguments, **options)
        begin = time.time()

    def released(self: Any) -> None:
        with file.open("a") as notes:
            notes.write(f"{begin} {time.time()}\n")
        release(self)

    setattr(Claim, "__init__", taken)  # noqa: B010
    setattr(Claim, "release", released)  # noqa: B010


def attack(training: Training, kind: str, count: int, seed: int, place: Path) -> Figures:
    """Start pairs of processes, at once or with a random delay of up to 0.6 of a run's duration."""
    draw, figures = random.Random(f"{training.name} {kind} {seed}"), Figures(training.name, kind)
    whole, seconds = undisturbed(training, place)
    for number in range(count):
        folder = place / f"{training.name}-{kind}-{number:03d}"
        if kind == "resume":
            make_unfinished(training, folder)
        arguments = training.resume(folder) if kind == "resume" else training.begin(folder)
        places = [place / f"{folder.name}.{name}" for name in ("first", "second")]
        first = start(arguments, places[0], partial(note_claims, places[0]))
        # Half of the pairs start at the same time, so that both may find the folder free.
        time.sleep(0.0 if number % 2 == 0 else draw.uniform(0.0, 0.6 * seconds))
        second = start(arguments, places[1], partial(note_claims, places[1]))
        held = judge((first, second), places, training, folder, whole, figures)
        seconds = min(seconds, held)  # the machine may have become less busy
    return figures


def make_unfinished(training: Training, folder: Path) -> None:
    """Leave a run in the folder that was killed after a checkpoint."""
    child = start(training.begin(folder), folder)
    while not training.saved_step(folder):
        if (status := child.wait(0.01)) is not None:
            raise AssertionError(f"it ended with {status} before it had saved anything:\n{child.said}")
    child.send(9)
    child.wait()


def judge(
    pair: tuple[Child, Child], notes: list[Path], training: Training, folder: Path, whole: Path, figures: Figures
) -> float:
    """Wait for both, and compare the result. Returns how long the folder was held."""
    figures.pairs += 1
    ends = [(child.wait(PATIENCE), child.said) for child in pair]
    held = sorted(tuple(map(float, line.split())) for note in notes for line in _lines(note))
    overlap = any(left[1] > right[0] for left, right in itertools.pairwise(held))
    winners = [said for status, said in ends if status == 0]
    losers = [said for status, said in ends if status == 1 and "Traceback" not in said]
    told = any("is being written to by process" in said for said in losers)
    free = max((end for _, end in held), default=0.0)
    # A process told that the folder is finished or not empty must have come after the other had released it.
    late = len(winners) == 2 or any(
        ("is finished" in said or "already" in said) and child.log.stat().st_mtime >= free - CLOCK
        for child, (status, said) in zip(pair, ends, strict=True)
        if status == 1
    )
    figures.together += overlap
    figures.in_turn += late
    figures.at_once += len(winners) == 1 and not late
    figures.told += told
    different = training.differences(folder, whole)
    figures.whole += not different
    if overlap or len(winners) + len(losers) != 2 or not winners or not (late or told) or different:
        statuses = [(status, said[-300:]) for status, said in ends]
        figures.problems.append(f"{folder.name}: {statuses} {different}")
    shutil.rmtree(folder, ignore_errors=True)
    return max((end - begin for begin, end in held), default=math.inf)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def run(count: int, seed: int, place: Path, names: tuple[str, ...] = ("train", "sft")) -> list[Figures]:
    """Attack all trainings; returns the figures: two starts with one name, and two resumes of one run."""
    every, found = trainings(place), []
    for name in names:
        for kind in ("start", "resume"):
            found.append(attack(every[name], kind, count, seed, place))
            print(line(found[-1]), flush=True)
    return found


HEAD = """| training | both | pairs | at once: one got it | the other was told | in turn | together | bit-equal |
|---|---|---:|---:|---:|---:|---:|---:|"""


def line(figures: Figures) -> str:
    """A row of the table, followed by the problems."""
    counts = (figures.pairs, figures.at_once, figures.told, figures.in_turn, figures.together, figures.whole)
    cells = (figures.training, figures.kind, *counts)
    return table.row(cells, figures)


def main(argv: list[str] | None = None) -> int:
    """Attack, print a table, and fail if anything was harmed."""
    arguments = table.flags(__doc__, 10, "pairs of each kind").parse_args(argv)
    return table.status(HEAD, partial(run, arguments.count, arguments.seed))


if __name__ == "__main__":
    sys.exit(main())
