"""How far a study is, and the items on which its annotators differ: a queue for a second look, beside what was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, case, func, select, update

from ppolm.feedback.record import SECOND_LOOK, Content
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Study
from ppolm.feedback.tables import items, judgements, prompts, responses, studies
from ppolm.feedback.transactions import transact

second = responses.alias("second")


@dataclass(frozen=True)
class StudyProgress:
    """How far a study is."""

    items: int
    wanted: int
    """Judgements that its items are to get together; gold questions are not counted."""
    judged: int
    """Of those, how many they have."""
    disputed: int
    looked_at: int
    """Judgements that were given in a second look."""


@dataclass(frozen=True)
class Verdict:
    """What somebody said of a disputed item."""

    annotator: str | None
    said: str | float
    """first, second, tie or both_bad, of the item's responses as they are stored; up, down; a score."""
    note: str | None
    repetition: int
    """0: asked for the first time; REPEAT; SECOND_LOOK."""
    time: datetime


@dataclass(frozen=True)
class Conflict:
    """An item on which annotators differ."""

    item: str
    content: Content
    responses: tuple[str, ...]
    verdicts: list[Verdict] = field(default_factory=list)


def study_progress(store: FeedbackStore, study: Study) -> StudyProgress:
    """Counted by the database, however large the study."""
    asked = items.c.gold.is_(None)
    capped = case((items.c.judged < study.wanted, items.c.judged), else_=study.wanted)
    query = select(
        func.count(),
        func.coalesce(func.sum(case((asked, study.wanted), else_=0)), 0),
        func.coalesce(func.sum(case((asked, capped), else_=0)), 0),
        func.coalesce(func.sum(case((items.c.disputed & asked, 1), else_=0)), 0),
    ).where(items.c.study == study.id)
    looks = select(func.count()).where(judgements.c.study == study.id, judgements.c.repetition == SECOND_LOOK)

    def work(connection: Connection) -> StudyProgress:
        all_, wanted, judged, disputed = (int(count) for count in connection.execute(query).one())
        return StudyProgress(all_, wanted, judged, disputed, connection.execute(looks).scalar_one())

    return transact(store.engine, work)


def find_conflicts(store: FeedbackStore, study: Study, count: int = 20, offset: int = 0) -> list[Conflict]:
    """Items of a study on which annotators differ, with what each has said."""
    query = (
        select(items.c.id, items.c.first_id, prompts.c.content, responses.c.text, second.c.text.label("second_text"))
        .join(responses, responses.c.id == items.c.first_id)
        .join(prompts, prompts.c.id == responses.c.prompt_id)
        .outerjoin(second, second.c.id == items.c.second_id)
        .where(items.c.study == study.id, items.c.disputed, items.c.gold.is_(None))
        .order_by(items.c.place)
        .limit(count)
        .offset(offset)
    )

    def work(connection: Connection) -> list[Conflict]:
        found = {row["id"]: row for row in connection.execute(query).mappings()}
        said = select(judgements).where(judgements.c.item.in_(list(found))).order_by(judgements.c.time)
        verdicts: dict[str, list[Any]] = {}
        for row in connection.execute(said).mappings():
            verdicts.setdefault(row["item"], []).append(row)
        return [_conflict(row, verdicts.get(id_, [])) for id_, row in found.items()]

    return transact(store.engine, work)


def ask_second_look(store: FeedbackStore, study: Study, wanted: bool) -> None:
    """Have the items on which annotators differ asked again, at the end, or no longer."""
    change = update(studies).where(studies.c.id == study.id).values(second_look=wanted)
    transact(store.engine, lambda connection: connection.execute(change), write=True)


def _conflict(row: Any, said: Sequence[Any]) -> Conflict:
    texts = (row["text"],) if row["second_text"] is None else (row["text"], row["second_text"])
    return Conflict(row["id"], row["content"], texts, [_verdict(one, row["first_id"]) for one in said])


def _verdict(row: Any, first_id: str) -> Verdict:
    said: str | float
    if row["kind"] == "preferences":
        said = "both_bad" if row["both_bad"] else "tie" if row["tie"] else "second"
        said = "first" if said == "second" and row["response_id"] == first_id else said
    else:
        said = float(row["score"]) if row["kind"] == "scores" else "up" if row["label"] else "down"
    return Verdict(row["annotator"], said, row["note"], row["repetition"] or 0, row["time"])
