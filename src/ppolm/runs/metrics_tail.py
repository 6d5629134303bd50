"""Reading metrics.jsonl while it grows: new lines only, or a few of many."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

Row = dict[str, Any]
LONGEST_LINE = 1 << 20
"""Bytes of a line beyond which it is none of ours, and skipped."""
LAST_STEP = 1 << 53
"""Beyond it whole numbers are no longer told apart by those who read them as floats."""
WHOLE = 1 << 18
"""Bytes up to which a file is read whole when a few rows of it are wanted."""
TAIL = 1 << 16
"""Bytes at its end in which the newest rows are looked for."""


class MetricsTail:
    """The rows of one metrics.jsonl, read on from where the last look ended. A file that was replaced is read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        """Raised whenever rows were added or replaced."""
        self.generation = 0
        """Raised whenever the file was replaced: what was read before no longer holds."""
        self._offset, self._inode = 0, -1
        self._rows: dict[str, dict[float, Row]] = {"train": {}, "eval": {}}

    def refresh(self) -> int:
        """Read what is new; the version."""
        try:
            found = self.path.stat()
        except OSError:
            return self.version
        if found.st_ino != self._inode or found.st_size < self._offset:  # a resume rewrote it
            self._offset, self._inode = 0, found.st_ino
            self._rows = {"train": {}, "eval": {}}
            self.generation += 1
        if found.st_size > self._offset:
            self._read()
        return self.version

    def _read(self) -> None:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        complete = data[: data.rfind(b"\n") + 1]  # the last line may still be being written
        self._offset += len(complete)
        for line in complete.split(b"\n"):
            row = parse_row(line)
            if row is not None and row["kind"] in self._rows:
                self._rows[row["kind"]][row["step"]] = row
        if complete:
            self.version += 1

    def rows(self, kind: str = "train") -> list[Row]:
        """The rows of a kind by step; a step that was run again counts once, with its last line."""
        found = self._rows[kind]
        return [found[step] for step in sorted(found)]


def parse_row(line: bytes) -> Row | None:
    """A line of metrics.jsonl; None for one that was cut off or damaged."""
    if not line or len(line) > LONGEST_LINE:
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    usable = isinstance(row, dict) and isinstance(row.get("kind"), str) and _is_step(row.get("step"))
    return row if usable else None


def _is_step(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= LAST_STEP  # NaN is below nothing


def sampled_rows(path: Path, points: int = 48) -> list[Row]:
    """About ``points`` training rows spread over the file, and the newest, without reading all of a long file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if size <= WHOLE:
                return _thinned(_by_step(_training(file.read().split(b"\n"))), points)
            return _by_step([*_spread(file, size, points - 1), *_newest(file, size)])
    except OSError:
        return []


def _training(lines: Iterable[bytes]) -> Iterator[Row]:
    return (row for line in lines if (row := parse_row(line)) is not None and row["kind"] == "train")


def _by_step(rows: Iterable[Row]) -> list[Row]:
    found = {row["step"]: row for row in rows}
    return [found[step] for step in sorted(found)]


def _thinned(rows: list[Row], points: int) -> list[Row]:
    if len(rows) <= points:
        return rows
    stride = (len(rows) - 1) / (points - 1)
    return [rows[round(i * stride)] for i in range(points)]


def _spread(file: BinaryIO, size: int, points: int) -> Iterator[Row]:
    """The training rows nearest to evenly spaced places of a file."""
    for i in range(points):
        file.seek(size * i // points)
        if i:
            file.readline(LONGEST_LINE)  # the rest of a line
        lines = (file.readline(LONGEST_LINE).rstrip(b"\n") for _ in range(3))  # an evaluation's row may stand between
        yield from islice(_training(lines), 1)


def _newest(file: BinaryIO, size: int) -> list[Row]:
    file.seek(max(0, size - TAIL))
    return list(_training(file.read().split(b"\n")[1:]))[-1:]
