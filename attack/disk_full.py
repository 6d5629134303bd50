"""A disk that is full at a random write: one error line, nothing damaged, and training resumes when there is room.

python -m attack.disk_full                       10 of each training
python -m attack.disk_full --count 3 --seed 1

The size of every file that the process writes is limited (RLIMIT_FSIZE). That fails in the kernel as a full disk does,
in whatever library is writing, and needs no privileges. It happens at the n-th checkpoint, result or report.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from attack import table
from attack.child import start
from attack.kills import PATIENCE, undisturbed
from attack.trainings import Training, trainings


@dataclass
class Figures:
    """Results of training runs whose disk was full."""

    training: str
    times: int = 0
    one_sentence: int = 0
    resumed: int = 0
    """Runs that resumed once there was room."""
    bit_equal: int = 0
    problems: list[str] = field(default_factory=list)


def fill_disk(number: int, size: int) -> None:
    """While the ``number``-th folder is written, let no file grow beyond ``size`` bytes."""
    from ppolm.storage import atomic

    written = 0
    fill: Callable[..., Any] = atomic._fill

    def limited(*arguments: Any) -> None:
        nonlocal written
        written += 1
        if written == number:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        try:
            fill(*arguments)
        finally:  # so that there is room for the error message
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    setattr(atomic, "_fill", limited)  # noqa: B010


def attack(training: Training, count: int, seed: int, place: Path) -> Figures:
    """Make the disk full at a random write of each of ``count`` training runs; then make room and resume."""
    draw, figures = random.Random(f"{training.name} {seed}"), Figures(training.name)
    whole, _ = undisturbed(training, place)
    turn = 0
    while figures.times < count:
        turn += 1
        folder = place / f"{training.name}-full-{turn:03d}"
        number, size = draw.randint(1, 7), draw.choice((0, 1_000, 20_000))
        child = start(training.begin(folder), folder, partial(fill_disk, number, size))
        status = child.wait(PATIENCE)
        if status == 0:
            continue  # it wrote fewer folders than ``number``
        figures.times += 1
        errors = [text for text in child.said.splitlines() if text.startswith("error: ")]
        explained = status == 1 and len(errors) == 1 and "could not be written" in errors[0]
        figures.one_sentence += explained and "Traceback" not in child.said
        nothing = training.name == "train" and training.saved_step(folder) is None
        again = start(training.begin(folder) if nothing else training.resume(folder), folder)
        ended = again.wait(PATIENCE)
        different = training.differences(folder, whole) if ended == 0 else [f"exit {ended}: {again.said[-300:]}"]
        figures.resumed += ended == 0
        figures.bit_equal += not different
        if not explained or different:
            told = errors or child.said[-300:]
            figures.problems.append(f"{folder.name}, write {number}: exit {status}: {told} {different}")
    return figures


def run(count: int, seed: int, place: Path, names: tuple[str, ...] = ("train", "sft", "reward")) -> list[Figures]:
    """Attack all trainings; returns the figures."""
    every, found = trainings(place), []
    for name in names:
        found.append(attack(every[name], count, seed, place))
        print(line(found[-1]), flush=True)
    return found


HEAD = """| training | disk full | one sentence, exit 1 | resumed | finished bit-equal |
|---|---:|---:|---:|---:|"""


def line(figures: Figures) -> str:
    """A row of the table, followed by the problems."""
    cells = (figures.training, figures.times, figures.one_sentence, figures.resumed, figures.bit_equal)
    return table.row(cells, figures)


def main(argv: list[str] | None = None) -> int:
    """Attack, print a table, and fail if anything was lost."""
    arguments = table.flags(__doc__, 10, "times for each training").parse_args(argv)
    return table.status(HEAD, partial(run, arguments.count, arguments.seed))


if __name__ == "__main__":
    sys.exit(main())
