"""Training runs killed or stopped at random moments, then resumed: is the result that of an undisturbed run?

python -m attack.kills                               50 kills, 10 of each signal for each training
python -m attack.kills --count 10 --signals 2 --seed 1
"""

from __future__ import annotations

import math
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from attack import table
from attack.child import BEGUN, DONE, start
from attack.trainings import Training, trainings

WAYS: dict[str, tuple[int, ...]] = {
    "kill -9": (signal.SIGKILL,),
    "SIGINT": (signal.SIGINT,),
    "SIGTERM": (signal.SIGTERM,),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
}
STATUS = {"kill -9": -9, "SIGINT": 130, "SIGTERM": 143, "SIGINT twice": 130}
PATIENCE = 600.0
"""Seconds after which a run counts as hanging."""


@dataclass
class Figures:
    """Results of training runs that were stopped in one way."""

    training: str
    way: str
    stopped: int = 0
    saved_nothing: int = 0
    """Runs stopped so early that there was nothing to resume; they are started again in the same folder."""
    bit_equal: int = 0
    later_steps: int = 0
    """Most steps begun after the signal."""
    lost_steps: int = 0
    """Most finished steps that were not saved after a signal."""
    slowest: float = 0.0
    """Longest time from a signal to the end of the process, in seconds."""
    problems: list[str] = field(default_factory=list)


def attack(training: Training, way: str, count: int, seed: int, place: Path) -> Figures:
    """Stop ``count`` training runs, each at another random moment, and finish them."""
    draw, figures = random.Random(f"{training.name} {way} {seed}"), Figures(training.name, way)
    whole, seconds = undisturbed(training, place)
    number = 0
    while figures.stopped < count:
        number += 1
        folder = place / f"{training.name}-{way.replace(' ', '')}-{number:03d}"
        needed = stop_and_finish(training, way, draw.uniform(0.0, seconds), folder, whole, figures)
        seconds = min(seconds, needed)  # the machine may have become less busy
    return figures


def undisturbed(training: Training, place: Path) -> tuple[Path, float]:
    """The folder of an undisturbed run, made once, and how long it took."""
    whole, clock = place / f"{training.name}-whole", place / f"{training.name}-whole.seconds"
    if not clock.exists():
        begin = time.monotonic()
        child = start(training.begin(whole), whole)
        assert child.wait(PATIENCE) == 0, child.said
        clock.write_text(str(time.monotonic() - begin))
    return whole, float(clock.read_text())


def stop_and_finish(training: Training, way: str, moment: float, folder: Path, whole: Path, figures: Figures) -> float:
    """Stop a run after ``moment`` seconds, then do what a user would do. Returns its duration if it ended before."""
    began = time.monotonic()
    child = start(training.begin(folder), folder)
    if child.wait(moment) is not None:
        return time.monotonic() - began
    child.send(signal.SIGSTOP)
    begun, done, sent = child.count(BEGUN), child.count(DONE), time.monotonic()
    child.send(*WAYS[way], signal.SIGCONT)
    status = child.wait(PATIENCE)
    if status == 0:
        return time.monotonic() - began  # the signal came when everything was done
    figures.stopped += 1
    where = f"{folder.name} after {moment:.2f} s"
    if way != "kill -9":
        figures.slowest = max(figures.slowest, time.monotonic() - sent)
        figures.later_steps = max(figures.later_steps, child.count(BEGUN) - begun)
        figures.lost_steps = max(figures.lost_steps, training.lost_steps(folder, done))
    # before Python's own handlers are installed, a signal simply ends the process
    if status != STATUS[way] and not (status in (-2, -15) and not child.said):
        figures.problems.append(f"{where}: exit {status}: {child.said[-300:]}")
    if "Traceback" in child.said or "FOLDER" in child.said:
        figures.problems.append(f"{where}: {child.said[-300:]}")
    for problem in finish(training, folder, whole, figures):
        figures.problems.append(f"{where}: {problem}")
    return math.inf


def finish(training: Training, folder: Path, whole: Path, figures: Figures) -> Iterator[str]:
    """Resume, or start again if nothing was saved; then compare."""
    child = start(training.resume(folder), folder)
    status = child.wait(PATIENCE)
    if status == 1 and "is finished" in child.said:
        status = 0  # it was killed after it had finished
    elif status == 1 and training.saved_step(folder) is None:
        figures.saved_nothing += 1
        child = start(training.begin(folder), folder)
        status = child.wait(PATIENCE)
    different = training.differences(folder, whole) if status == 0 else [f"exit {status}: {child.said[-300:]}"]
    figures.bit_equal += not different
    yield from different
    yield from (f"left behind: {name}" for name in training.leftovers(folder))


def run(
    kills: int, signals: int, seed: int, place: Path, names: Sequence[str] = ("train", "sft", "reward")
) -> list[Figures]:
    """Attack all trainings; returns the figures. The kills are divided among them, PPO first."""
    found = []
    every = trainings(place)
    for number, name in enumerate(names):
        share = len(range(number, kills, len(names)))
        counts = {way: share if way == "kill -9" else signals for way in WAYS}
        for way, count in counts.items():
            if count:
                found.append(attack(every[name], way, count, seed, place))
                print(line(found[-1]), flush=True)
    return found


HEAD = """| training | stopped by | times | nothing saved yet | bit-equal | steps begun later | lost | slowest end |
|---|---|---:|---:|---:|---:|---:|---:|"""


def line(figures: Figures) -> str:
    """A row of the table, followed by the problems."""
    signals = figures.way != "kill -9"
    told = (figures.later_steps, figures.lost_steps, f"{figures.slowest:.1f} s") if signals else ("", "", "")
    cells = (figures.training, figures.way, figures.stopped, figures.saved_nothing, figures.bit_equal, *told)
    return table.row(cells, figures)


def main(argv: list[str] | None = None) -> int:
    """Attack, print a table, and fail if anything was lost."""
    parser = table.flags(__doc__, 50, "kill -9, over all trainings")
    parser.add_argument("--signals", type=int, default=10, help="of each signal, for each training")
    parser.add_argument("--trainings", nargs="+", default=["train", "sft", "reward"])
    arguments = parser.parse_args(argv)
    attack_all = partial(run, arguments.count, arguments.signals, arguments.seed, names=arguments.trainings)
    return table.status(HEAD, attack_all)


if __name__ == "__main__":
    sys.exit(main())
