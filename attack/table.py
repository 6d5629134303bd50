"""What the attacks on trainings share: their flags, a table that grows as they go, a status that tells of faults."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol


class Figures(Protocol):
    """What became of one row's trainings."""

    @property
    def problems(self) -> list[str]:
        """What was not as it should be, each with where it happened."""


def flags(description: str | None, count: int, counted: str) -> argparse.ArgumentParser:
    """A parser with the flags that every attack takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=count, help=counted)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def row(cells: Iterable[object], figures: Figures) -> str:
    """A row of the table, and what went wrong below it."""
    return "\n".join([f"| {' | '.join(map(str, cells))} |", *figures.problems])


def status(head: str, attack: Callable[[Path], Sequence[Figures]]) -> int:
    """Attack in a folder of its own, below the table's head; 1 if anything went wrong."""
    print(head)
    with tempfile.TemporaryDirectory() as place:
        return int(any(figures.problems for figures in attack(Path(place))))
