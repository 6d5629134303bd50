"""Converting judgements to and from rows of data files; an export can be imported again without duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from ppolm.data.examples import as_judgement
from ppolm.data.load_rows import load_rows
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError
from ppolm.feedback.record import Record, Source, digest, now
from ppolm.messages import brief

COLUMNS = (
    *("prompt", "messages", "chosen", "rejected", "tie", "margin", "completion", "score", "label"),
    *("confidence", "annotator", "judged_at", "run", "step", "sequence", "judgement_id"),
)
"""The columns of an exported file, in order; empty ones are left out."""
RENAME = "Rename the column if it means something else."


def read_records(
    source: str, split: str = "train", annotator: str | None = None, skip_bad: bool = False, again: bool = False
) -> list[Record]:
    """All judgements of a file or dataset; ``annotator`` is used for rows that name none.

    The id of a row is its ``judgement_id`` if it has one, else a digest of its content, its annotator and the number of
    identical rows before it in the file. So a row imported twice is one judgement, the same judgement by two annotators
    is two, and importing a file again adds only its new rows. With ``again`` every row is a new judgement.
    """
    seen: Counter[str] | None = None if again else Counter()
    what = "judgements (prompt, chosen, rejected)"
    return load_rows(source, split, lambda row, where: as_record(row, where, annotator, seen), what, skip_bad)


def as_record(row: Any, where: str, annotator: str | None, seen: Counter[str] | None) -> Record:
    """A row as a judgement; ``seen`` counts identical rows of the file. If it is None, the record gets a new id."""
    judgement = as_judgement(row, where)
    columns = judgement.prompt.columns
    judgement = replace(judgement, prompt=Prompt(judgement.prompt.content), annotator=judgement.annotator or annotator)
    time = _time(columns, where)
    source = Source(
        None if columns.get("run") in (None, "") else str(columns["run"]),
        _whole(columns, "step", where),
        _whole(columns, "sequence", where),
    )
    record = Record(judgement, time=time or now(), source=source)
    if seen is None:
        return record
    own = columns.get("judgement_id")
    if own in (None, ""):
        said = {name: value for name, value in vars(judgement).items() if name != "prompt"}
        content = digest([record.kind, record.response_ids, said, time, vars(source)])
        seen[content] += 1
        own = digest([content, seen[content]])[:32]
    elif not isinstance(own, str) or not own.isalnum() or not own.isascii() or len(own) > 64:
        raise DataError(f"{where} has {brief(own)} as its 'judgement_id', expected up to 64 letters and digits.")
    return replace(record, id=own)


def loadable_rows(records: Iterable[Record]) -> tuple[list[dict[str, Any]], list[DataError]]:
    """Judgements as rows, and errors for those that cannot be: a store may hold empty responses or lone surrogates."""
    rows, problems = [], []
    for record in records:
        row, where = as_row(record), f"Judgement {record.id}"
        try:
            as_judgement(row, where)
            "".join(_texts(row)).encode()
            rows.append(row)
        except DataError as error:
            problems.append(error)
        except UnicodeEncodeError:
            problems.append(DataError(f"{where} holds half a character."))
    return rows, problems


def _texts(value: Any) -> Iterator[str]:
    """All strings inside a row."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def as_row(record: Record) -> dict[str, Any]:
    """A judgement as a row that ``as_record`` reads back."""
    judged, content = record.judgement, record.judgement.prompt.content
    row: dict[str, Any] = {"prompt": content} if isinstance(content, str) else {"messages": content}
    row |= judged.answers | judged.said
    row |= {"confidence": judged.confidence, "annotator": judged.annotator}
    row |= {"judged_at": record.time.isoformat(), **vars(record.source), "judgement_id": record.id}
    return {name: row[name] for name in COLUMNS if row.get(name) is not None}


def _whole(columns: Mapping[str, Any], name: str, where: str) -> int | None:
    value = columns.get(name)
    if value in (None, ""):
        return None
    try:
        number = float(value)  # spreadsheets store numbers as text, and 3 as 3.0
        if number == int(number) and abs(number) < 2**31:
            return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    raise DataError(f"{where} has {brief(value)} as its {name!r}, expected a whole number. {RENAME}")


def _time(columns: Mapping[str, Any], where: str) -> datetime | None:
    value = columns.get("judged_at")
    if value in (None, ""):
        return None
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)
    except (ValueError, OverflowError):  # the latter near the first or last date, after conversion to UTC
        expected = "expected a time such as 2026-05-01T12:00:00+00:00"
        raise DataError(f"{where} has {brief(value)} as its 'judged_at', {expected}. {RENAME}") from None
