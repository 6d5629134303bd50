"""Rows from JSONL, CSV, Parquet or text files, from a dataset by name, or from the embedded world."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ppolm.data.csv_rows import read_csv
from ppolm.data.hub import offline_unless_reachable
from ppolm.embedded.world.rows import Row, read_world
from ppolm.errors import DataError
from ppolm.messages import is_utf8
from ppolm.names import EMBEDDED


def read_rows(source: str, split: str = "train") -> Iterator[Row]:
    """All rows of a file or dataset, one by one; ``embedded`` is the world that ships with ppolm.

    A dataset may be named with its configuration and split, ``name/config:split``; ``split`` is the default split.
    A row that cannot be read is yielded as the DataError that says why, so that the caller can decide to continue.
    """
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
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"File {path} cannot be read: {error}. It is damaged or cut off: get it again.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"File {path} cannot be read: {error}") from error


def _open_bytes(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def _open(path: Path, errors: str = "strict") -> IO[str]:
    # utf-8-sig: spreadsheets put a byte order mark first, which would become part of the first column's name.
    return io.TextIOWrapper(_open_bytes(path), encoding="utf-8-sig", errors=errors, newline="")


def _read_jsonl(path: Path) -> Iterator[Row]:
    with _open_bytes(path) as file:  # decoded line by line, so that a badly encoded line affects no other
        for number, line in enumerate(file, 1):
            if line.strip():
                where = f"{path}, line {number},"
                try:
                    row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                except UnicodeDecodeError as error:
                    yield where, DataError(f"{where} is not UTF-8 text: {error}. Save the file as UTF-8.")
                except (ValueError, RecursionError) as error:
                    yield where, DataError(f"{where} is not JSON: {error}. Each line must be one JSON object.")
                else:
                    yield where, _whole(row, where) if b"\\ud" in line.lower() else row


def _whole(row: Any, where: str) -> Any:
    """The row, or a DataError if it holds a lone surrogate (such as \\ud83d), which no tokenizer accepts."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return DataError(f"{where} holds half a character (a lone surrogate escape). Remove it from the text.")
    return row


def _read_json(path: Path) -> Iterator[Row]:
    """A JSON array of rows, or a .json file with one object per line."""
    with _open(path, errors="surrogateescape") as file:
        is_array = file.read(4096).lstrip().startswith("[")
    if not is_array:
        yield from _read_jsonl(path)
        return
    with _open(path) as file:
        try:
            rows = json.load(file)
        except UnicodeDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            raise DataError(f"File {path} is not JSON: {error}.") from None
    for number, row in enumerate(rows, 1):
        where = f"{path}, item {number},"
        yield where, _whole(row, where)


def _read_csv(path: Path) -> Iterator[Row]:
    with _open(path, errors="surrogateescape") as file:
        yield from read_csv(file, str(path))


def _read_text(path: Path) -> Iterator[Row]:
    with _open(path, errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                where = f"{path}, line {number},"
                error = DataError(f"{where} is not UTF-8 text. Save the file as UTF-8.")
                yield where, line.rstrip("\r\n") if is_utf8(line) else error


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow.parquet as parquet
    from pyarrow import ArrowException

    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=1024):  # not the whole file in memory
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number},", row
    except ArrowException as error:
        raise DataError(f"File {path} is not a readable Parquet file: {error}") from None


@dataclass(frozen=True)
class DatasetName:
    """A parsed ``name/config:split``: a folder of data files or a name on the Hub, its configuration and split."""

    name: str
    config: str | None
    split: str

    @classmethod
    def parse(cls, source: str, split: str) -> DatasetName:
        """Parse a name. A folder may have any path; a Hub name has at most two parts, so a third is a configuration."""
        if Path(source).expanduser().is_dir():  # first, because a folder's name may contain a colon
            return cls(str(Path(source).expanduser()), None, split)
        place, _, own_split = source.partition(":")
        if Path(place).expanduser().is_dir():
            return cls(str(Path(place).expanduser()), None, own_split or split)
        name, _, config = place.rpartition("/")
        if name and (Path(name).expanduser().is_dir() or name.count("/") == 1):
            return cls(str(Path(name).expanduser()), config, own_split or split)
        return cls(place, None, own_split or split)


MOST_ENTRIES = 10_000
"""Limit on files and folders in a data folder: the library scans them all several times, 8 s for this many."""


def _refuse_folder_of_everything(folder: Path, source: str) -> None:
    """Refuse a home folder or a whole disk, which is no dataset and would take minutes or hours to scan."""
    count, waiting = 0, [folder]
    while waiting:
        try:
            entries = list(islice(os.scandir(waiting.pop()), MOST_ENTRIES + 1))
        except (OSError, ValueError):  # no permission, gone or not a valid name: the library will report it
            continue
        waiting += [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
        count += len(entries)
        if count > MOST_ENTRIES:
            raise DataError(
                f"Folder {source!r} holds more than {MOST_ENTRIES:,} files and folders, too many to be looked through "
                "for data. Give the file, or the folder, that holds the rows."
            )


def _read_dataset(source: str, split: str) -> Iterator[Row]:
    wanted = DatasetName.parse(source, split)
    _refuse_folder_of_everything(Path(wanted.name), source)
    import datasets

    with offline_unless_reachable() as reachable:
        try:
            rows = datasets.load_dataset(wanted.name, wanted.config, split=wanted.split)
        except Exception as error:  # the library raises many types
            offline = "" if reachable else " The Hugging Face Hub cannot be reached."
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"{source!r} is neither a file nor a dataset that loads.{offline} "
                f"Give a .jsonl, .csv, .parquet or .txt file. ({type(error).__name__}: {reason})"
            ) from error
    for number, row in enumerate(rows, 1):
        yield f"{wanted.name} ({wanted.split}), row {number},", row
