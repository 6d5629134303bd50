"""Rows of a CSV file. Anything ambiguous, above all where a row ends, is an error and never a guess."""

from __future__ import annotations

import ast
import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ppolm.embedded.world.rows import Row
from ppolm.errors import DataError
from ppolm.messages import brief, is_utf8, reason

LARGEST_CELL = 64 * 2**20
"""Characters. The csv module's own limit of 131,072 is too small for a long conversation."""
LARGEST_REPR = 2**20
"""Largest Python list to parse, in characters: Python's parser has no memory limit."""
ENOUGH_LINES = 10
"""With at least this many lines in one cell, it is no coincidence if nearly all of them look like rows."""
CHAT_COLUMNS = ("prompt", "messages", "completion", "chosen", "rejected")
MESSAGE = re.compile(r"\s*\[\s*(?:array\()?\s*\[?\s*\{\s*['\"](?:role|content)['\"]\s*:")
"""How a list of messages begins, in JSON and in Python."""


def read_csv(lines: Iterable[str], path: str) -> Iterator[Row]:
    """Rows of an open file, read with ``surrogateescape``; a bad row is yielded as its DataError."""
    # strict: otherwise an unclosed quote would turn all following rows into one cell.
    reader = csv.reader(lines, strict=True)
    try:
        header = _next(reader) or []
    except csv.Error as error:
        raise DataError(f"File {path} has a first line that cannot be read: {error}.") from None
    _check_header(header, path)
    while True:
        start = reader.line_num + 1  # where the row begins: a cell may hold several lines
        where = f"{path}, line {start},"
        try:
            cells = _next(reader)
        except csv.Error as error:
            if reader.line_num > start:
                raise _unclosed(where, reader.line_num - start + 1, str(error)) from None
            yield where, DataError(f"{where} cannot be read: {error}. Close its quotes, and double those inside.")
            continue
        if cells is None:
            return
        if reader.line_num - start >= ENOUGH_LINES and any(_holds_rows(cell, len(header)) for cell in cells):
            raise _unclosed(where, reader.line_num - start + 1, "most lines inside the cell look like rows of the file")
        if cells:
            yield where, _row(header, cells, where)


def _next(reader: Any) -> list[str] | None:
    """The next row. The cell size limit applies to the whole process, so it is raised for this row only."""
    before = csv.field_size_limit(LARGEST_CELL)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)


def _unclosed(where: str, lines: int, why: str) -> DataError:
    """An error for the whole file: after such a quote, where rows begin can only be guessed."""
    if "field larger" in why:
        why = f"a cell holds more than {LARGEST_CELL // 2**20} million characters"
    return DataError(
        f"{where} opens a quote that is not closed as it should be: the cell runs over {lines:,} lines ({why}). All "
        "rows after it are in doubt, so none is used, not even with skip_bad_rows. Close the quote in that line, and "
        "double quotes inside cells."
    )


def _holds_rows(cell: str, columns: int) -> bool:
    """Whether a cell has swallowed whole rows: nearly all of its lines have as many commas as the header."""
    lines = [line for line in cell.splitlines()[1:-1] if line.strip()]
    if columns < 2 or len(lines) < ENOUGH_LINES - 2:
        return False
    return sum(line.count(",") == columns - 1 for line in lines) > 0.9 * len(lines)


def _check_header(header: list[str], path: str) -> None:
    """Raise for a duplicate column, since it is unclear which one was meant. Columns without a name are ignored."""
    for name, count in Counter(header).items():
        if count > 1 and name.strip():
            raise DataError(f"File {path} has {count} columns called {brief(name)}. Rename all but one.")


def _row(header: list[str], cells: list[str], where: str) -> Any:
    if len(cells) > len(header):
        have = f"{len(cells)} cells for {len(header)} columns"
        return DataError(f"{where} has {have}. Put quotes around text with commas.")
    if not is_utf8("".join(cells)):
        return DataError(f"{where} is not UTF-8 text. Save the file as UTF-8.")
    try:
        return {name: _cell(name, cell, where) for name, cell in zip(header, cells, strict=False)}
    except DataError as error:
        return error


def _cell(name: str, cell: str, where: str) -> Any:
    """A cell's text, or chat messages if it holds them as JSON or as a Python literal (``DataFrame.to_csv``)."""
    if name not in CHAT_COLUMNS or not cell.lstrip().startswith("["):
        return cell
    for read in (json.loads, _literal):
        try:
            value = read(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            failed = error
            continue
        listed = isinstance(value, list) and bool(value)
        if listed and all(isinstance(item, dict) and {"role", "content"} <= item.keys() for item in value):
            return value
        return cell
    if MESSAGE.match(cell):  # used as text, it would train a model to write Python
        raise DataError(
            f"{where} has messages as its {name!r} that cannot be read ({reason(failed, 80)}): {brief(cell, 40)}. "
            "Write them as JSON: json.dumps(messages) before to_csv, or save the file as .jsonl or .parquet."
        )
    return cell


def _literal(cell: str) -> Any:
    """The value of a Python literal; runs no code."""
    if len(cell) > LARGEST_REPR:
        raise ValueError(f"it has more than {LARGEST_REPR:,} characters")
    return ast.literal_eval(cell.strip())
