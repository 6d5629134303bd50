"""A study: items to be judged, where each side came from, and how people are asked about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from sqlalchemy import Connection, func, insert, select

from ppolm.errors import FeedbackError
from ppolm.feedback.record import Content, Source, digest, now, response_id
from ppolm.feedback.statements import insert_answers, insert_new
from ppolm.feedback.storable import check_source
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.table_rows import answer_row, source_row
from ppolm.feedback.tables import items, studies
from ppolm.feedback.transactions import transact
from ppolm.messages import brief

Ask = Literal["score", "thumb", "preference"]
GOLD_VERDICTS: dict[Ask, tuple[str, ...]] = {
    "preference": ("first", "second", "tie", "both_bad"),
    "thumb": ("up", "down"),
    "score": (),
}
STUDIES = select(studies).order_by(studies.c.time, studies.c.id)
LONGEST_NAME, LONGEST_GUIDELINES, MOST_AXES = 200, 20_000, 20


@dataclass(frozen=True)
class Study:
    """How a set of items is judged."""

    name: str
    kind: Ask = "preference"
    guidelines: str = ""
    axes: tuple[str, ...] = ()
    """Names of what is scored besides the whole."""
    scale: tuple[float, float] = (1.0, 7.0)
    """Lowest and highest score."""
    repeats: float = 0.05
    """Share of the comparisons that an annotator is asked a second time, with the sides swapped."""
    wanted: int = 1
    """Judgements per item, each of another annotator."""
    second_look: bool = False
    """Whether items on which annotators differ are asked again at the end."""
    identical: int = 0
    """Pairs that were left out because both responses are the same text."""
    time: datetime = field(default_factory=now)

    @cached_property
    def id(self) -> str:
        """The digest of its name, which no other study of a store has."""
        return study_id(self.name)


@dataclass(frozen=True)
class Item:
    """One thing to judge: a response, or two responses to the same prompt."""

    content: Content
    responses: tuple[str, ...]
    sources: tuple[Source, ...] = ()
    gold: str | None = None
    """The answer that is known to be right: first, second, tie, both_bad; up, down; a score."""

    @cached_property
    def response_ids(self) -> tuple[str, ...]:
        """The digests of its responses."""
        return tuple(response_id(self.content, text) for text in self.responses)


def study_id(name: str) -> str:
    """The id of the study of that name."""
    return digest(["study", name])[:32]


def item_id(study: Study, item: Item) -> str:
    """The same for the same responses in the same study, in whatever order they are given."""
    return digest(["item", study.id, sorted(item.response_ids)])[:32]


def create_study(store: FeedbackStore, study: Study, content: Sequence[Item]) -> Study:
    """Store a study with its items, all or nothing; the study as it was stored.

    A pair that is there twice counts once, as the first of them; one whose two responses are the same text is left
    out and counted.
    """
    check_study(study)
    different = [item for item in content if len(set(item.responses)) == len(item.responses)]
    study = replace(study, identical=study.identical + len(content) - len(different))
    rows = {row["id"]: row for row in (_item_row(study, item) for item in reversed(different))}
    if not rows:
        raise FeedbackError(
            f"Study {brief(study.name)} would have nothing to judge: no items, or only identical pairs."
        )
    answers = [answer_row(item.content, text) for item in different for text in item.responses]

    def work(connection: Connection) -> None:
        _refuse_taken(connection, store, study.name)
        insert_answers(connection, {row["id"]: row for row in answers})
        connection.execute(insert(studies).values(**_study_row(study)))
        insert_new(connection, items, rows)

    transact(store.engine, work, write=True)
    return study


def refuse_taken(store: FeedbackStore, name: str) -> None:
    """Raise if a store has a study of that name: better before its items are sampled than after."""
    transact(store.engine, lambda connection: _refuse_taken(connection, store, name))


def _refuse_taken(connection: Connection, store: FeedbackStore, name: str) -> None:
    if connection.execute(select(studies.c.id).where(studies.c.id == study_id(name))).first():
        raise FeedbackError(f"{store.name} already has a study {brief(name)}. Choose another name.")


def check_study(study: Study) -> None:
    """Raise if people could not be asked like that."""
    lowest, highest = study.scale
    name = study.name.strip()
    problems = {
        f"its name is {brief(study.name)}, expected 1 to {LONGEST_NAME} characters": not 0 < len(name) <= LONGEST_NAME,
        f"its guidelines have more than {LONGEST_GUIDELINES:,} characters": len(study.guidelines) > LONGEST_GUIDELINES,
        f"it asks for {brief(study.kind)}, expected {', '.join(GOLD_VERDICTS)}": study.kind not in GOLD_VERDICTS,
        f"its axes are {brief(study.axes)}, expected at most {MOST_AXES} different names": (
            len(set(study.axes)) < len(study.axes)
            or len(study.axes) > MOST_AXES
            or not all(0 < len(axis.strip()) <= LONGEST_NAME for axis in study.axes)
        ),
        f"its scale is {brief(study.scale)}, expected a lower and a higher number": not -1e6 <= lowest < highest <= 1e6,
        f"its share of repeats is {brief(study.repeats)}, expected 0 to 0.5": not 0 <= study.repeats <= 0.5,
        f"it wants {brief(study.wanted)} judgements per item, expected 1 to 1000": not 1 <= study.wanted <= 1000,
    }
    for problem, found in problems.items():
        if found:
            raise FeedbackError(f"The study cannot be made: {problem}. Change it.")


def find_study(store: FeedbackStore, name: str) -> Study:
    """The study of that name, or with that id."""
    query = select(studies).where(studies.c.id.in_([study_id(name), name]))
    row = transact(store.engine, lambda connection: connection.execute(query).mappings().first())
    if row is None:
        known = ", ".join(brief(study.name) for study in all_studies(store)[:10]) or "none"
        raise FeedbackError(
            f"{store.name} has no study {brief(name)}. It has: {known}. `ppolm feedback study` makes one."
        )
    return study_of(row)


def all_studies(store: FeedbackStore) -> list[Study]:
    """The studies of a store, the oldest first."""
    return transact(store.engine, read_studies)


def read_studies(connection: Connection) -> list[Study]:
    """The same, within a transaction."""
    return [study_of(row) for row in connection.execute(STUDIES).mappings()]


def count_items(store: FeedbackStore, study: Study) -> int:
    """How many items a study has."""
    query = select(func.count()).where(items.c.study == study.id)
    return int(transact(store.engine, lambda connection: connection.execute(query).scalar_one()))


def study_of(row: Any) -> Study:
    """A study as it was stored."""
    return Study(
        name=row["name"],
        kind=row["kind"],
        guidelines=row["guidelines"],
        axes=tuple(row["axes"]),
        scale=(row["lowest"], row["highest"]),
        **{name: row[name] for name in ("repeats", "wanted", "second_look", "identical", "time")},
    )


def _study_row(study: Study) -> dict[str, Any]:
    lowest, highest = study.scale
    fields = ("id", "name", "kind", "guidelines", "repeats", "wanted", "second_look", "identical", "time")
    row = {name: getattr(study, name) for name in fields}
    return row | {"axes": list(study.axes), "lowest": float(lowest), "highest": float(highest)}


def _item_row(study: Study, item: Item) -> dict[str, Any]:
    expected = 2 if study.kind == "preference" else 1
    if len(item.responses) != expected:
        raise FeedbackError(f"An item of a study that asks for a {study.kind} needs {expected} responses.")
    for source in item.sources:
        check_source(source)
    id_ = item_id(study, item)
    sources = (*item.sources, Source(), Source())[:2]
    return {
        "id": id_,
        "study": study.id,
        # A random order, the same for all: each annotator begins somewhere else in it.
        "place": int(digest(["place", id_])[:7], 16),
        "first_id": item.response_ids[0],
        "second_id": item.response_ids[1] if expected == 2 else None,
        **source_row(sources[0], "first_"),
        **source_row(sources[1] if expected == 2 else Source(), "second_"),
        "gold": _gold(study, item.gold),
        "judged": 0,
        "disputed": False,
    }


def _gold(study: Study, verdict: str | None) -> str | None:
    if verdict is None:
        return None
    if study.kind == "score":
        try:
            if study.scale[0] <= float(verdict) <= study.scale[1]:
                return repr(float(verdict))
        except ValueError:
            pass
    elif verdict in GOLD_VERDICTS[study.kind]:
        return verdict
    expected = ", ".join(GOLD_VERDICTS[study.kind]) or f"a score from {study.scale[0]:g} to {study.scale[1]:g}"
    raise FeedbackError(f"The gold answer {brief(verdict)} is no answer of this study. Expected: {expected}.")
