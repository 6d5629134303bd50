"""The SQL behind the questions of a study, built once: building a statement takes longer than running it.

All of them take ``study`` and ``annotator``; :func:`next_items` also ``taken``, ``chance`` and ``level``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from sqlalchemy import BindParameter, Select, and_, bindparam, func, or_, select

from ppolm.feedback.record import REPEAT, SECOND_LOOK
from ppolm.feedback.tables import items, judgements, prompts, responses, skips

ItemsOf = Literal["level", "gold", "disputed"]
second = responses.alias("second")
_study: BindParameter[str] = bindparam("study")
_annotator: BindParameter[str] = bindparam("annotator")
_taken: BindParameter[list[str]] = bindparam("taken", expanding=True)
_of_study = items.c.study == _study
_judged_by = and_(judgements.c.study == _study, judgements.c.annotator == _annotator)
_KINDS: dict[ItemsOf, Any] = {
    "level": and_(items.c.judged == bindparam("level"), items.c.gold.is_(None)),
    "gold": items.c.gold.is_not(None),
    "disputed": and_(items.c.disputed, items.c.gold.is_(None)),
}


def _first_time(table: Any) -> Any:
    """A first answer of the annotator, or a skip of a first question."""
    first = table.c.repetition.is_(None) if table is judgements else table.c.repetition == 0
    return and_(table.c.annotator == _annotator, first)


def _seen(table: Any) -> Any:
    return select(table.c.item).where(table.c.item == items.c.id, _first_time(table)).exists()


def _looked_again(table: Any) -> Any:
    again = and_(table.c.annotator == _annotator, table.c.repetition == SECOND_LOOK)
    return select(table.c.item).where(table.c.item == items.c.id, again).exists()


_ITEMS = (
    select(items, prompts.c.content, responses.c.text, second.c.text.label("second_text"))
    .join(responses, responses.c.id == items.c.first_id)
    .join(prompts, prompts.c.id == responses.c.prompt_id)
    .outerjoin(second, second.c.id == items.c.second_id)
)
SOME_ITEMS = _ITEMS.where(_of_study, items.c.id.in_(bindparam("keys", expanding=True)))
ASKED: Select[Any] = (
    select(judgements.c.repetition, judgements.c.gold, func.count())
    .where(_judged_by)
    .group_by(judgements.c.repetition, judgements.c.gold)
)
ANY_GOLD = select(items.c.id).where(_of_study, items.c.gold.is_not(None)).limit(1)
NEXT_LEVEL = select(func.min(items.c.judged)).where(_of_study, items.c.judged > bindparam("level"))
HISTORY = (
    select(judgements.c.item, judgements.c.repetition, judgements.c.gold)
    .where(_judged_by)
    .order_by(judgements.c.time.desc(), judgements.c.id)
    .limit(bindparam("count"))
)
REPEATS = (
    select(judgements.c.item)
    .where(_judged_by, judgements.c.repetition == REPEAT)
    .union(
        select(skips.c.item).where(
            skips.c.study == _study, skips.c.annotator == _annotator, skips.c.repetition == REPEAT
        )
    )
)
"""The items whose repeat was answered or skipped."""
SECOND_LOOKS = (
    select(items.c.id)
    .where(_of_study, _KINDS["disputed"], _seen(judgements), ~_looked_again(judgements), ~_looked_again(skips))
    .where(items.c.id.not_in(_taken))
    .order_by(items.c.place)
    .limit(1)
)
"""A disputed item that the annotator has judged, and was not asked to look at again."""


@cache
def next_items(kind: ItemsOf, from_start: bool) -> Select[Any]:
    """Items of a kind, neither judged nor skipped, in the annotator's order; ``from_start``: before where it begins."""
    part = items.c.place < bindparam("chance") if from_start else items.c.place >= bindparam("chance")
    return (
        _ITEMS.where(_of_study, _KINDS[kind], part, ~_seen(judgements), ~_seen(skips), items.c.id.not_in(_taken))
        .order_by(items.c.place)
        .limit(bindparam("count"))
    )


@cache
def items_left(second_look: bool) -> Select[Any]:
    """How many items the annotator may still be asked about for the first time."""
    open_ = or_(items.c.judged < bindparam("wanted"), items.c.gold.is_not(None))
    open_ = or_(open_, items.c.disputed) if second_look else open_
    count = select(func.count()).select_from(items).where(_of_study, open_)
    answered = (
        count.join(table, and_(table.c.item == items.c.id, table.c.study == _study, _first_time(table)))
        for table in (judgements, skips)
    )
    judged, skipped = (query.scalar_subquery() for query in answered)
    return select(count.scalar_subquery() - judged - skipped)
