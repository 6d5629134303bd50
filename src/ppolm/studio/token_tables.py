"""The stored token tables of runs: the list of steps, and the tables, with a cache of the most recent ones."""

from __future__ import annotations

import re
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from ppolm.errors import RunFolderError
from ppolm.studio.step_table import StepTable, file_key, read_step

FOLDER = "table"
NAME = re.compile(r"step-(\d{6,12})\.parquet")
MOST_TABLES = 8
MOST_BYTES = 512 << 20
"""Memory of the cached tables; the newest one stays in any case."""


def table_path(run: Path, step: int) -> Path:
    """Where a run keeps the table of a step."""
    return run / FOLDER / f"step-{step:06d}.parquet"


def logged_steps(run: Path) -> list[int]:
    """The steps whose tables a run has stored, in order."""
    try:
        names = [path.name for path in (run / FOLDER).iterdir()]
    except OSError:
        return []
    return sorted(int(match[1]) for name in names if (match := NAME.fullmatch(name)))


class TokenTables:
    """Reads tables and caches the most recent ones. A file that was replaced is read again. Thread-safe."""

    def __init__(self, most_tables: int = MOST_TABLES, most_bytes: int = MOST_BYTES) -> None:
        self.most_tables, self.most_bytes = most_tables, most_bytes
        self._kept: OrderedDict[Path, tuple[tuple[int, int, int], StepTable]] = OrderedDict()
        self._lock = Lock()

    def load(self, run: Path, step: int) -> StepTable:
        """The table of a step; ``RunFolderError`` if there is none or it cannot be read."""
        path = table_path(run, step)
        try:
            file = path.open("rb")
        except OSError as error:
            raise RunFolderError(f"The run has no token table of step {step}. {_advice(logged_steps(run))}") from error
        with file:
            key = file_key(file)
            with self._lock:
                if path in self._kept and self._kept[path][0] == key:
                    self._kept.move_to_end(path)
                    return self._kept[path][1]
            table = read_step(file, path)
        with self._lock:
            self._kept[path] = (key, table)
            self._kept.move_to_end(path)
            self._make_room()
        return table

    def _make_room(self) -> None:
        while len(self._kept) > 1 and (
            len(self._kept) > self.most_tables
            or sum(table.nbytes for _, table in self._kept.values()) > self.most_bytes
        ):
            self._kept.popitem(last=False)


def _advice(steps: list[int]) -> str:
    if not steps:
        return "It has none at all yet: they are written at step 1 and every table_every steps (0: never)."
    shown = ", ".join(map(str, steps[:8])) + (f", ..., {steps[-1]}" if len(steps) > 8 else "")
    return f"It has those of step {shown}."
