"""How each annotator judges: how much, how fast, and how far they agree with themselves and with what is known."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from ppolm.feedback.record import REPEAT, Record
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.tables import items
from ppolm.feedback.transactions import transact
from ppolm.measures.intervals import Interval, share_interval

GOLD_TOLERANCE = 1.0
"""How far a score may be from the right one."""


@dataclass(frozen=True)
class GoldAnswer:
    """What is known to be right of an item."""

    verdict: str
    """first, second, tie, both_bad; up, down; a score."""
    first_id: str
    """The response that ``first`` means."""


@dataclass(frozen=True)
class AnnotatorFigures:
    """One annotator. Shares come with 95 % intervals by item; None where there is nothing to measure."""

    annotator: str
    judgements: int
    seconds: float | None
    """Median of the active seconds per judgement."""
    repeats: int
    consistency: Interval | None
    """Share of repeats, sides swapped, that were answered as the first time."""
    decided: int
    """Comparisons in which one response was better."""
    first: Interval | None
    """Share of those in which it was the one shown first: 0.5 without a side bias."""
    golds: int
    gold: Interval | None
    """Share of gold questions that were answered right."""


def people_figures(records: Sequence[Record], gold: Mapping[str, GoldAnswer]) -> list[AnnotatorFigures]:
    """The figures of every named annotator, by name; ``gold`` holds the right answers by item."""
    by_name: dict[str, list[Record]] = {}
    for record in records:
        if record.judgement.annotator is not None:
            by_name.setdefault(record.judgement.annotator, []).append(record)
    return [_figures(name, by_name[name], gold) for name in sorted(by_name)]


def gold_answers(store: FeedbackStore) -> dict[str, GoldAnswer]:
    """The right answers that a store knows, by item."""
    query = select(items.c.id, items.c.gold, items.c.first_id).where(items.c.gold.is_not(None))
    rows = transact(store.engine, lambda connection: connection.execute(query).all())
    return {row.id: GoldAnswer(row.gold, row.first_id) for row in rows}


def _figures(name: str, records: list[Record], gold: Mapping[str, GoldAnswer]) -> AnnotatorFigures:
    seconds = [record.details.seconds for record in records if record.details.seconds is not None]
    same = _repeats(records)
    decided = [
        record
        for record in records
        if record.kind == "preferences" and record.verdict != 0 and record.details.chosen_first is not None
    ]
    known = [record for record in records if record.details.item in gold and not record.details.repetition]
    right = [float(is_right(record, gold[str(record.details.item)])) for record in known]
    return AnnotatorFigures(
        annotator=name,
        judgements=len(records),
        seconds=statistics.median(seconds) if seconds else None,
        repeats=len(same),
        consistency=_share(same, range(len(same))),
        decided=len(decided),
        first=_share([float(bool(record.details.chosen_first)) for record in decided], _items(decided)),
        golds=len(known),
        gold=_share(right, _items(known)),
    )


def _repeats(records: Iterable[Record]) -> list[float]:
    """Of each repeat, whether it says what the first answer said."""
    originals: dict[str | None, Record] = {}
    repeats = []
    for record in records:
        if record.details.repetition == REPEAT:
            repeats.append(record)
        elif not record.details.repetition and record.details.item is not None:
            originals[record.details.item] = record
    pairs = ((record, originals.get(record.details.item)) for record in repeats)
    return [float(_said(record) == _said(original)) for record, original in pairs if original is not None]


def _said(record: Record) -> tuple[float, bool]:
    return record.verdict, record.details.both_bad


def is_right(record: Record, gold: GoldAnswer) -> bool:
    """Whether a judgement says what is known to be right."""
    if record.kind == "scores":
        return abs(record.verdict - float(gold.verdict)) <= GOLD_TOLERANCE
    if record.kind == "thumbs":
        return record.verdict == (1.0 if gold.verdict == "up" else -1.0)
    if record.verdict == 0:
        return gold.verdict == ("both_bad" if record.details.both_bad else "tie")
    return gold.verdict == ("first" if record.response_ids[0] == gold.first_id else "second")


def _items(records: Sequence[Record]) -> list[int]:
    """Which judgements are about the same item, as numbers."""
    numbers: dict[tuple[str, ...], int] = {}
    return [numbers.setdefault(record.item, len(numbers)) for record in records]


def _share(values: Sequence[float], clusters: Iterable[int]) -> Interval | None:
    return share_interval(values, list(clusters)) if values else None
