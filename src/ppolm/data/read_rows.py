"""Rows from JSONL, CSV, Parquet or text files, from a dataset by name, or from the embedded world."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ppolm.data.hub import offline_unless_reachable
from ppolm.data.world.rows import EMBEDDED, Row, read_world
from ppolm.errors import DataError


def read_rows(source: str, split: str = "train") -> Iterator[Row]:
    """All rows of a file or dataset, one by one; ``embedded`` is the world that ships with ppolm."""
    path = Path(source).expanduser()
    if path.is_file():
        return _read_file(path)
    if source == EMBEDDED or source.startswith(f"{EMBEDDED}:"):
        return read_world(source.partition(":")[2] or split)
    if path.suffix.lower() in (".jsonl", ".json", ".gz", ".csv", ".parquet", ".txt") and not path.is_dir():
        raise DataError(f"File {source} does not exist. Give a .jsonl, .csv, .parquet or .txt file, or a dataset name.")
    return _read_dataset(source, split)


def _read_file(path: Path) -> Iterator[Row]:
    name = path.name.lower().removesuffix(".gz")
    readers = {
        ".jsonl": _read_jsonl,
        ".json": _read_json,
        ".csv": _read_csv,
        ".parquet": _read_parquet,
        ".txt": _read_text,
    }
    reader = readers.get(Path(name).suffix)
    if reader is None:
        raise DataError(f"File {path} has an unknown ending. Expected .jsonl, .jsonl.gz, .csv, .parquet or .txt.")
    try:
        yield from reader(path)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"File {path} cannot be read: {error}") from error


def _open(path: Path) -> Any:
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    # utf-8-sig: spreadsheets put a byte order mark first, which would become part of the first column's name.
    return opener(path, "rt", encoding="utf-8-sig", newline="")


def _read_jsonl(path: Path) -> Iterator[Row]:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                where = f"{path}, line {number},"
                try:
                    yield where, json.loads(line)
                except json.JSONDecodeError as error:
                    raise DataError(f"{where} is not JSON: {error}. Each line must be one JSON object.") from None


def _read_json(path: Path) -> Iterator[Row]:
    """A JSON array of rows, or what is called .json but is one object per line."""
    with _open(path) as file:
        is_array = file.read(4096).lstrip().startswith("[")
        file.seek(0)
        if not is_array:
            yield from _read_jsonl(path)
            return
        try:
            rows = json.load(file)
        except json.JSONDecodeError as error:
            raise DataError(f"File {path} is not JSON: {error}.") from None
    yield from ((f"{path}, item {number},", row) for number, row in enumerate(rows, 1))


def _read_csv(path: Path) -> Iterator[Row]:
    with _open(path) as file:
        reader = csv.DictReader(file)
        for row in reader:
            yield f"{path}, line {reader.line_num},", row


def _read_text(path: Path) -> Iterator[Row]:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield f"{path}, line {number},", line.rstrip("\r\n")


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow.parquet as parquet
    from pyarrow import ArrowInvalid

    try:
        table = parquet.read_table(path)
    except ArrowInvalid as error:
        raise DataError(f"File {path} is not a readable Parquet file: {error}") from None
    for number, row in enumerate(table.to_pylist(), 1):
        yield f"{path}, row {number},", row


def _read_dataset(name: str, split: str) -> Iterator[Row]:
    import datasets

    with offline_unless_reachable() as reachable:
        try:
            rows = datasets.load_dataset(name, split=split)
        except Exception as error:  # the library raises many kinds
            offline = "" if reachable else " The Hugging Face Hub cannot be reached."
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"{name!r} is neither a file nor a dataset that loads.{offline} "
                f"Give a .jsonl, .csv, .parquet or .txt file. ({type(error).__name__}: {reason})"
            ) from error
    for number, row in enumerate(rows, 1):
        yield f"{name} ({split}), row {number},", row
