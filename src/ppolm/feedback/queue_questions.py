"""Which queued responses an annotator is asked about next: what a live run waits for first."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, case, func, or_, select

from ppolm.feedback.record import now
from ppolm.feedback.statements import CHUNK, is_judged
from ppolm.feedback.study import Ask
from ppolm.feedback.table_rows import source_of, wait_of
from ppolm.feedback.tables import judgements, prompts, queue, responses, skips
from ppolm.feedback.task import Question, Side

LOOK = 2000
"""Queued responses that are looked at for the next question: the oldest that are open."""
BETWEEN = "."
"""Stands between the two ids of a pair."""


class QueueQuestions:
    """The questions about queued responses, of all runs or of one, to one annotator.

    Where comparisons are asked for and a run waits for a response that there is none to compare with, as in
    evaluations, it is asked for a thumb: that is on the same scale.
    """

    def __init__(self, kind: Ask, annotator: str, run: str | None = None) -> None:
        self.kind, self.annotator, self.run = kind, annotator, run

    def plan(self, connection: Connection, count: int, excluded: list[Question], live: bool | None) -> list[Question]:
        """The next questions, when ``excluded`` are already before the annotator.

        ``live``: only what a run waits for; False: only what none waits for; None: both.
        """
        found: list[Question] = []
        taken = {question.key for question in excluded}
        for key in self.keys(connection, live):
            if len(found) == count:
                break
            question = self.find(connection, key) if key not in taken else None
            if question is not None:
                found.append(question)
        return found

    def keys(self, connection: Connection, live: bool | None) -> list[str]:
        """Everything that is open, in the order in which it is asked."""
        rows = connection.execute(_open(self.kind, live, self.run is not None), self.given()).mappings().all()
        if not rows:
            return []
        keys = self._pairs(connection, rows) if self.kind == "preference" else [row["response_id"] for row in rows]
        passed = set(connection.execute(_skipped(self.kind, self.run is not None), self.given()).scalars())
        return [key for key in keys if key not in passed]

    def find(self, connection: Connection, key: str) -> Question | None:
        """The question about one response, or two, if they are in the queue."""
        ids = key.split(BETWEEN)
        if len(ids) > (2 if self.kind == "preference" else 1):
            return None
        kind: Ask = "thumb" if self.kind == "preference" and len(ids) == 1 else self.kind
        query = (
            select(queue, responses.c.text, responses.c.prompt_id, prompts.c.content)
            .add_columns(case((is_judged(queue.c.response_id), 1), else_=0).label("released"))
            .join(responses, responses.c.id == queue.c.response_id)
            .join(prompts, prompts.c.id == responses.c.prompt_id)
            .where(queue.c.response_id.in_(ids))
        )
        if self.run is not None:
            query = query.where(queue.c.run == self.run)
        rows = {row["response_id"]: row for row in connection.execute(query).mappings()}
        if set(ids) != set(rows) or len({row["prompt_id"] for row in rows.values()}) > 1:
            return None
        ordered = [rows[id_] for id_ in ids]
        sides = tuple(Side(row["response_id"], row["text"], source_of(row)) for row in ordered)
        waits = [wait for row in ordered if not row["released"] and (wait := wait_of(row)) is not None]
        first = min(waits, key=lambda wait: wait.since, default=None)
        return Question(key, kind, ordered[0]["content"], sides, wait=first)

    def waiting(self, connection: Connection) -> int:
        """How many responses a run waits for at this moment."""
        return int(connection.execute(_waiting(self.run is not None), self.given()).scalar_one())

    def given(self) -> dict[str, Any]:
        """What the statements about the queue are told."""
        return {"now": now(), "annotator": self.annotator, **({} if self.run is None else {"run": self.run})}

    def _pairs(self, connection: Connection, rows: Any) -> list[str]:
        """Pairs of responses to one prompt that this annotator has not compared, and responses that wait alone.

        First what releases most: both responses without a judgement, then one of them, then the rest.
        """
        groups: dict[str, list[Any]] = {}
        for row in rows:
            groups.setdefault(row["prompt_id"], []).append(row)
        alone = [group[0] for group in groups.values() if len(group) == 1]
        pairs = [pair for group in groups.values() for pair in combinations(group, 2)]
        compared = self._compared(connection, sorted({row["response_id"] for pair in pairs for row in pair}))
        keys = {}
        for number, pair in enumerate(pairs):
            ids = sorted(row["response_id"] for row in pair)
            if tuple(ids) not in compared:
                keys[BETWEEN.join(ids)] = (sum(row["released"] for row in pair), number)
        for number, row in enumerate(alone):
            if row["waits_since"] is not None and not row["released"]:
                keys[row["response_id"]] = (1, number)
        # Oldest wait first, which is the order of the rows; within it what releases most.
        return sorted(keys, key=lambda key: (keys[key][0] == 2, keys[key][0], keys[key][1]))

    def _compared(self, connection: Connection, ids: list[str]) -> set[tuple[str, ...]]:
        """The pairs among these responses that this annotator has compared."""
        found: set[tuple[str, ...]] = set()
        for start in range(0, len(ids), CHUNK):
            query = select(judgements.c.response_id, judgements.c.rejected_id).where(
                judgements.c.response_id.in_(ids[start : start + CHUNK]),
                judgements.c.kind == "preferences",
                judgements.c.annotator == self.annotator,
            )
            found.update(tuple(sorted(row)) for row in connection.execute(query))
        return found


_now = bindparam("now", type_=queue.c.waits_until.type)
_is_live = queue.c.waits_until > _now
"""Whether a run waits for a response."""


def asked_in(table: Any, kind: Ask, one_run: bool) -> Any:
    """The rows of judgements or skips in which ``annotator`` answered such questions."""
    asks = ("preference", "thumb") if kind == "preference" else (kind,)
    kinds = [*asks, *(f"{ask}s" for ask in asks)]  # judgements name their kind in the plural
    mine = and_(table.c.annotator == bindparam("annotator"), table.c.study.is_(None), table.c.kind.in_(kinds))
    return and_(mine, table.c.item.is_not(None), *([table.c.run == bindparam("run")] if one_run else []))


@cache
def _skipped(kind: Ask, one_run: bool) -> Select[Any]:
    return select(skips.c.item).where(asked_in(skips, kind, one_run))


@cache
def _waiting(one_run: bool) -> Select[Any]:
    """How many responses a run waits for. Statements are built once: that takes longer than running them."""
    query = select(func.count()).select_from(queue).where(_is_live, ~is_judged(queue.c.response_id))
    return query.where(queue.c.run == bindparam("run")) if one_run else query


@cache
def _open(kind: Ask, live: bool | None, one_run: bool) -> Select[Any]:
    """Responses without a verdict of their own; of those that were only compared, other pairs may be asked."""
    released = is_judged(queue.c.response_id)
    open_ = ~is_judged(queue.c.response_id, ("scores", "thumbs")) if kind == "preference" else ~released
    waits = case((_is_live, queue.c.waits_since), else_=None)
    query = (
        select(queue.c.response_id, responses.c.prompt_id, waits.label("waits_since"), queue.c.time)
        .add_columns(case((released, 1), else_=0).label("released"))
        .join(responses, responses.c.id == queue.c.response_id)
        .where(open_)
        .order_by(waits.is_(None), waits, queue.c.time, queue.c.sequence, queue.c.response_id)
        .limit(LOOK)
    )
    if live is not None:
        query = query.where(_is_live if live else or_(queue.c.waits_until.is_(None), queue.c.waits_until <= _now))
    return query.where(queue.c.run == bindparam("run")) if one_run else query
