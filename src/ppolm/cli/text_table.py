"""Text tables for terminals of any width: cells are cut and columns left out as needed, and no line wraps."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from ppolm.messages import printable

GAP = "  "
BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Column:
    """A heading and a cell per row."""

    title: str
    cells: Sequence[str]
    right: bool = False
    """Numbers stand at the right."""
    least: int | None = None
    """Width to which it may be cut; None: it is never cut."""
    leaves: int = 0
    """If there is no room for all columns, the one with the highest number is left out first; 0: never."""

    @property
    def width(self) -> int:
        """Width of the longest cell."""
        return max(map(width_of, (self.title, *self.cells)))


def width_of(text: str) -> int:
    """Terminal columns of printable text: two for a wide letter, none for a combining accent."""
    if text.isascii():
        return len(text)
    return sum(_columns(letter) for letter in text)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def fit(text: str, width: int, right: bool = False) -> str:
    """Text in exactly ``width`` columns: filled up, or cut with a mark."""
    space = width - width_of(text)
    if space < 0:
        text, space = _start_of(text, width - 1) + "…", 0
        space = width - width_of(text)
    return " " * space + text if right else text + " " * space


def _start_of(text: str, width: int) -> str:
    used = 0
    for position, letter in enumerate(text):
        used += _columns(letter)
        if used > width:
            return text[:position]
    return text


def shown(text: str) -> str:
    """Untrusted text for one cell: on one line, with control characters escaped."""
    return printable(text, keep="")


def table_lines(columns: Sequence[Column], width: int | None) -> list[str]:
    """Headings and rows, no line longer than ``width``; None: as long as they need."""
    kept, widths = _arrange(list(columns), width)
    rows = [[column.title for column in kept], *(list(row) for row in zip(*(c.cells for c in kept), strict=True))]
    aligned = (
        GAP.join(fit(cell, size, column.right) for cell, column, size in zip(row, kept, widths, strict=True))
        for row in rows
    )
    return [line.rstrip() for line in aligned]


def _arrange(columns: list[Column], width: int | None) -> tuple[list[Column], list[int]]:
    """The columns that there is room for, and how wide each is."""
    if width is None:
        return columns, [column.width for column in columns]
    while True:
        least = [min(column.width, column.least or column.width) for column in columns]
        spare = width - sum(least) - len(GAP) * (len(columns) - 1)
        last = max(columns, key=lambda column: column.leaves)
        if spare >= 0 or not last.leaves:
            break
        columns.remove(last)
    widths = []
    for column, size in zip(columns, least, strict=True):
        more = max(0, min(spare, column.width - size))
        spare -= more
        widths.append(size + more)
    if spare < 0 and widths:  # even the last columns are too wide together: the first gives way
        widths[0] = max(1, widths[0] + spare)
    return columns, widths


def sparkline(values: Sequence[float | None], width: int = 12) -> str:
    """Some numbers as blocks of different height, a gap where there is none."""
    if len(values) > width:
        values = [values[round(i * (len(values) - 1) / (width - 1))] for i in range(width)]
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, span = min(known), max(known) - min(known)
    heights = (None if v is None else 0.5 if span == 0 else (v - low) / span for v in values)
    return "".join(" " if height is None else BLOCKS[round(height * (len(BLOCKS) - 1))] for height in heights)
