"""Writing rows to a JSONL, CSV or Parquet file that is complete or does not exist."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ppolm.data.load_rows import try_rows
from ppolm.errors import DataError, FeedbackError
from ppolm.feedback.exchange import COLUMNS, as_record
from ppolm.messages import brief

Row = Mapping[str, Any]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows in the format given by the file's ending; an existing file is never overwritten."""
    check_target(path)
    temporary = path.with_name(f".{os.getpid()}-{path.name}")  # keeps the ending, which the reader below needs
    try:
        WRITERS[_ending(path)](temporary, rows)
        _read_back(temporary, path, len(rows))
        if path.exists():  # created in the meantime
            raise FeedbackError(f"{path} already exists. Give a new file.")
        temporary.rename(path)
    except OSError as error:
        raise FeedbackError(f"{path} cannot be written: {error}. Give another file.") from error
    finally:
        with contextlib.suppress(OSError):  # a folder that cannot be written to
            temporary.unlink(missing_ok=True)


def check_target(path: Path) -> None:
    """Raise if a file cannot be created there."""
    if _ending(path) not in WRITERS:
        raise FeedbackError(f"{path} has an unknown ending. Expected {', '.join(WRITERS)}.")
    try:
        if path.exists():
            raise FeedbackError(f"{path} already exists. Give a new file.")
        if not path.parent.is_dir():
            raise FeedbackError(f"{path} cannot be written: there is no folder {path.parent}. Make it.")
    except OSError as error:  # an invalid file name
        raise FeedbackError(f"{brief(str(path))} cannot be written: {error.strerror}. Give another file.") from None


def _ending(path: Path) -> str:
    name = path.name.lower()
    return next((ending for ending in sorted(WRITERS, key=len, reverse=True) if name.endswith(ending)), path.suffix)


def _read_back(temporary: Path, path: Path, expected: int) -> None:
    """Raise unless every row can be read back."""
    try:
        good, bad = try_rows(str(temporary), "train", lambda row, where: as_record(row, where, None, Counter()))
    except DataError as error:
        bad, good = [error], []
    if bad or len(good) != expected:
        reason = str(bad[0]).replace(str(temporary), str(path)) if bad else f"{len(good)} of {expected} rows came back"
        raise FeedbackError(f"{path} would not load again: {reason} Nothing was written; try the ending .jsonl.")


def _write_jsonl(path: Path, rows: Sequence[Row]) -> None:
    zipped = path.name.lower().endswith(".gz")
    with gzip.open(path, "wt", encoding="utf-8") if zipped else path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(_json(row) + "\n")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _used(rows))
        writer.writeheader()
        try:
            for row in rows:
                writer.writerow({**row, "messages": _json(row["messages"])} if "messages" in row else row)
        except csv.Error as error:  # Python 3.10's csv module refuses NUL
            raise FeedbackError(f"{path} cannot hold these rows: {error}. Give it the ending .jsonl.") from error


def _write_parquet(path: Path, rows: Sequence[Row]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        columns = {name: pa.array([row.get(name) for row in rows]) for name in _used(rows)}
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise FeedbackError(f"{path} cannot hold these rows: {error}. Give it the ending .jsonl.") from error
    parquet.write_table(pa.table(columns), path)


def _used(rows: Sequence[Row]) -> list[str]:
    return [name for name in COLUMNS if any(name in row for row in rows)]


WRITERS = {".jsonl": _write_jsonl, ".jsonl.gz": _write_jsonl, ".csv": _write_csv, ".parquet": _write_parquet}
