"""Judgements from and to rows of data files: what was exported is the same judgements when it comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ppolm.data.examples import as_judgement
from ppolm.data.load_rows import load_rows
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError
from ppolm.feedback.record import Details, Record, Source, canonical, digest, now
from ppolm.feedback.row_values import as_axes, as_flag, as_number, as_text, as_time, as_whole
from ppolm.feedback.table_rows import source_row
from ppolm.messages import brief

COLUMNS = (
    *("prompt", "messages", "chosen", "rejected", "tie", "margin", "completion", "score", "label"),
    *("confidence", "annotator", "judged_at", "run", "step", "sequence", "judgement_id"),
    *("policy", "purpose", *(f"rejected_{name}" for name in Source.__dataclass_fields__)),
    *Details.__dataclass_fields__,
)
"""The columns of an exported file, in order; those that say nothing are left out."""


def read_records(
    source: str, split: str = "train", annotator: str | None = None, skip_bad: bool = False, again: bool = False
) -> list[Record]:
    """All judgements of a file or dataset; ``annotator`` gave those that name none.

    The id of a row is its ``judgement_id`` if it has one, else a digest of what it says, who says it, and how many rows
    like it came before in the file: the same row imported twice is one judgement, the same judgement of two annotators
    is two, and a file to which rows were added brings only those. With ``again`` every row is a new judgement.
    """
    seen: Counter[str] | None = None if again else Counter()
    what = "judgements (prompt, chosen, rejected)"
    return load_rows(source, split, lambda row, where: as_record(row, where, annotator, seen), what, skip_bad)


def as_record(row: Any, where: str, annotator: str | None, seen: Counter[str] | None) -> Record:
    """A row as a judgement; ``seen`` counts the rows of its file, without it the row's own id is not used."""
    judgement = as_judgement(row, where)
    columns = judgement.prompt.columns
    judgement = replace(judgement, prompt=Prompt(judgement.prompt.content), annotator=judgement.annotator or annotator)
    time = as_time(columns, where)
    # Of a file from elsewhere only these are read: its "note" or "item" may be anything. Ours say when it was judged.
    exported = columns if time is not None else {name: columns.get(name) for name in ("run", "step", "sequence")}
    source = _source(exported, "", where)
    record = Record(
        judgement,
        time=time or now(),
        source=source,
        rejected_source=_source(exported, "rejected_", where),
        details=_details(exported, where),
    )
    if seen is None:
        return record
    own = columns.get("judgement_id")
    if own in (None, ""):
        said = {name: value for name, value in vars(judgement).items() if name != "prompt"}
        made = {name: getattr(source, name) for name in ("run", "step", "sequence")}
        content = digest([record.kind, record.response_ids, said, time, made])
        seen[content] += 1
        own = digest([content, seen[content]])[:32]
    elif not isinstance(own, str) or not own.isalnum() or not own.isascii() or len(own) > 64:
        raise DataError(f"{where} has {brief(own)} as its 'judgement_id', expected up to 64 letters and digits.")
    return replace(record, id=own)


def loadable_rows(records: Iterable[Record]) -> tuple[list[dict[str, Any]], list[DataError]]:
    """Rows of judgements, and why some cannot be rows: a store may hold empty responses or halves of characters."""
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
    """All text inside a row."""
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
    row |= {"judged_at": record.time.isoformat(), "judgement_id": record.id}
    row |= source_row(record.source) | source_row(record.rejected_source, "rejected_")
    details = vars(record.details)
    row |= details | {name: details[name] or None for name in ("both_bad", "gold", "repetition")}
    row["axes"] = canonical(dict(details["axes"])) if details["axes"] else None  # text: the axes of rows may differ
    return {name: row[name] for name in COLUMNS if row.get(name) is not None}


def _source(columns: Mapping[str, Any], prefix: str, where: str) -> Source:
    return Source(
        run=as_text(columns, f"{prefix}run"),
        step=as_whole(columns, f"{prefix}step", where),
        sequence=as_whole(columns, f"{prefix}sequence", where),
        policy=as_text(columns, f"{prefix}policy"),
        purpose=as_text(columns, f"{prefix}purpose"),
    )


def _details(columns: Mapping[str, Any], where: str) -> Details:
    return Details(
        study=as_text(columns, "study"),
        item=as_text(columns, "item"),
        seconds=as_number(columns, "seconds", where),
        chosen_first=as_flag(columns, "chosen_first", where),
        both_bad=bool(as_flag(columns, "both_bad", where)),
        strength=as_whole(columns, "strength", where),
        axes=as_axes(columns, where),
        note=as_text(columns, "note"),
        repetition=as_whole(columns, "repetition", where) or 0,
        gold=bool(as_flag(columns, "gold", where)),
    )
