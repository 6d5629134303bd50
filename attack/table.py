"""Shared by the attacks on training runs: flags, a table printed row by row, and an exit status for faults."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol


class Figures(Protocol):
    """Results of the training runs in one row."""

    @property
    def problems(self) -> list[str]:
        """What went wrong, and where."""


def flags(description: str | None, count: int, counted: str) -> argparse.ArgumentParser:
    """A parser with the flags that every attack takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=count, help=counted)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def row(cells: Iterable[object], figures: Figures) -> str:
    """A row of the table, with the problems below it."""
    return "\n".join([f"| {' | '.join(map(str, cells))} |", *figures.problems])


def status(head: str, attack: Callable[[Path], Sequence[Figures]]) -> int:
    """Print the table's head and attack in a temporary folder; returns 1 if anything went wrong."""
    print(head)
    with tempfile.TemporaryDirectory() as place:
        return int(any(figures.problems for figures in attack(Path(place))))
