"""Which items of a study an annotator is asked next. All of it is found by indexes, however large the study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, func, or_, select

from ppolm.feedback.record import REPEAT, SECOND_LOOK, digest
from ppolm.feedback.study import Study
from ppolm.feedback.table_rows import source_of
from ppolm.feedback.tables import items, judgements, prompts, responses, skips
from ppolm.feedback.task import Question, Side

REPEAT_DISTANCE = 5
"""Other tasks between a pair and its repeat, at least."""
REPEAT_WINDOW = 50
"""How far back a repeat may go beyond that."""
GOLD_SHARE = 0.1
"""Gold questions among the first tasks of an annotator, at least, as long as there are any."""
AT_ONCE = 10
"""Items that are read together, for the next questions of one plan."""
second = responses.alias("second")


@dataclass
class Asked:
    """What an annotator has been asked so far, with what is planned."""

    originals: int = 0
    repeats: int = 0
    golds: int = 0

    def count(self, question: Question) -> None:
        """One more."""
        self.repeats += question.repetition == REPEAT
        self.golds += question.gold is not None and not question.repetition
        self.originals += not question.repetition


class StudyQuestions:
    """The questions of one study to one annotator."""

    def __init__(self, study: Study, annotator: str) -> None:
        self.study, self.annotator = study, annotator
        self.chance = int(digest(["chance", study.id, annotator])[:7], 16)
        """Where in the items' random order this annotator begins; with it repeats and gold come at other moments."""
        self._has_gold = True
        self._ready: list[Question] = []

    def plan(self, connection: Connection, count: int, excluded: list[Question]) -> list[Question]:
        """The next questions, when ``excluded`` are already before the annotator."""
        asked, self._has_gold, self._ready = self._asked(connection), self._any_gold(connection), []
        for question in excluded:
            asked.count(question)
        taken = list(excluded)
        while len(taken) < count + len(excluded):
            planned = self._next(connection, asked, taken)
            if planned is None:
                break
            asked.count(planned)
            taken.append(planned)
        return taken[len(excluded) :]

    def find(self, connection: Connection, key: str) -> Question | None:
        """The question about one item, if this study has it."""
        row = connection.execute(_select().where(items.c.id == key, items.c.study == self.study.id)).mappings().first()
        return None if row is None else self._question(row)

    def left(self, connection: Connection) -> int:
        """How many items this annotator may still be asked about for the first time."""
        open_ = or_(items.c.judged < self.study.wanted, items.c.gold.is_not(None))
        if self.study.second_look:
            open_ = or_(open_, items.c.disputed)
        query = select(func.count()).select_from(items).where(items.c.study == self.study.id, open_)
        number = connection.execute(query).scalar_one()
        for table in (judgements, skips):
            seen = and_(table.c.item == items.c.id, table.c.study == self.study.id, self._mine(table))
            number -= connection.execute(query.join(table, seen)).scalar_one()
        return max(0, int(number))

    def _asked(self, connection: Connection) -> Asked:
        query = select(judgements.c.repetition, judgements.c.gold, func.count()).where(
            judgements.c.study == self.study.id, judgements.c.annotator == self.annotator
        )
        asked = Asked()
        for repetition, gold, number in connection.execute(query.group_by(judgements.c.repetition, judgements.c.gold)):
            asked.repeats += number if repetition == REPEAT else 0
            asked.golds += number if gold and not repetition else 0
            asked.originals += 0 if repetition else number
        return asked

    def _next(self, connection: Connection, asked: Asked, taken: list[Question]) -> Question | None:
        """A repeat or a gold question if one is due, else the item with the fewest judgements."""
        phase = self.chance % 1000 / 1000
        if self.study.kind == "preference" and int(self.study.repeats * asked.originals + phase) > asked.repeats:
            question = self._repeat(connection, taken)
            if question is not None:
                return question
        if int(GOLD_SHARE * asked.originals + phase) > asked.golds:
            question = self._gold(connection, taken)
            if question is not None:
                return question
        return (
            self._fewest(connection, taken)
            or self._gold(connection, taken)
            or (self._second_look(connection, taken) if self.study.second_look else None)
        )

    def _any_gold(self, connection: Connection) -> bool:
        query = select(items.c.id).where(items.c.study == self.study.id, items.c.gold.is_not(None)).limit(1)
        return connection.execute(query).first() is not None

    def _gold(self, connection: Connection, taken: list[Question]) -> Question | None:
        """A question with a right answer; most studies have none, and then nothing is searched for each task."""
        return self._first_of(connection, items.c.gold.is_not(None), taken) if self._has_gold else None

    def _fewest(self, connection: Connection, taken: list[Question]) -> Question | None:
        """An item without a right answer that still wants judgements, of those that have the fewest.

        Several are read at once: those that stand next are what the following calls of a plan ask for.
        """
        keys = {question.key for question in taken}
        self._ready = [question for question in self._ready if question.key not in keys]
        level = -1
        while not self._ready:
            least = select(func.min(items.c.judged)).where(items.c.study == self.study.id, items.c.judged > level)
            found = connection.execute(least).scalar()
            if found is None or found >= self.study.wanted:
                return None
            level = int(found)
            self._ready = self._some_of(connection, and_(items.c.judged == level, items.c.gold.is_(None)), taken)
        return self._ready[0]

    def _first_of(self, connection: Connection, condition: Any, taken: list[Question]) -> Question | None:
        """The next item, in this annotator's order, that meets a condition and was neither judged nor skipped."""
        return next(iter(self._some_of(connection, condition, taken, 1)), None)

    def _some_of(
        self, connection: Connection, condition: Any, taken: list[Question], count: int = AT_ONCE
    ) -> list[Question]:
        """The next items of that kind; fewer than ``count`` do not mean that there are no more."""
        seen = [
            select(table.c.item).where(table.c.item == items.c.id, self._mine(table)).exists()
            for table in (judgements, skips)
        ]
        query = (
            _select()
            .where(items.c.study == self.study.id, condition, ~seen[0], ~seen[1])
            .where(items.c.id.not_in([question.key for question in taken]))
            .order_by(items.c.place)
            .limit(count)
        )
        for part in (items.c.place >= self.chance, items.c.place < self.chance):
            rows = connection.execute(query.where(part)).mappings().all()
            if rows:
                return [self._question(row) for row in rows]
        return []

    def _repeat(self, connection: Connection, taken: list[Question]) -> Question | None:
        """A pair that this annotator judged a while ago, and was not asked again."""
        query = (
            select(judgements.c.item, judgements.c.repetition, judgements.c.gold)
            .where(judgements.c.study == self.study.id, judgements.c.annotator == self.annotator)
            .order_by(judgements.c.time.desc(), judgements.c.id)
            .limit(REPEAT_DISTANCE + REPEAT_WINDOW)
        )
        history = connection.execute(query).all()
        again = {row.item for row in history if row.repetition} | {question.key for question in taken}
        skipped = select(skips.c.item).where(
            skips.c.annotator == self.annotator, skips.c.study == self.study.id, skips.c.repetition == REPEAT
        )
        again.update(connection.execute(skipped).scalars())
        repeated = select(judgements.c.item).where(
            judgements.c.study == self.study.id,
            judgements.c.annotator == self.annotator,
            judgements.c.repetition == REPEAT,
        )
        again.update(connection.execute(repeated).scalars())
        # What is before the annotator, and not yet judged, stands between too.
        old = history[max(0, REPEAT_DISTANCE - len(taken)) :]
        fit = [row.item for row in old if not row.repetition and not row.gold and row.item not in again]
        for key in sorted(fit, key=lambda item: digest([item, self.annotator])):
            question = self.find(connection, key)
            if question is not None:
                return question.again(REPEAT)
        return None

    def _second_look(self, connection: Connection, taken: list[Question]) -> Question | None:
        """An item on which annotators differ: one that is new to this annotator, else one that is not."""
        disputed = and_(items.c.disputed, items.c.gold.is_(None))
        fresh = self._first_of(connection, disputed, taken)
        if fresh is not None:
            return fresh
        again = [
            select(table.c.item)
            .where(table.c.item == items.c.id, table.c.annotator == self.annotator, table.c.repetition == SECOND_LOOK)
            .exists()
            for table in (judgements, skips)
        ]
        mine = select(judgements.c.item).where(judgements.c.item == items.c.id, self._mine(judgements)).exists()
        query = select(items.c.id).where(items.c.study == self.study.id, disputed, mine, ~again[0], ~again[1])
        query = query.where(items.c.id.not_in([question.key for question in taken])).order_by(items.c.place).limit(1)
        key = connection.execute(query).scalar()
        question = None if key is None else self.find(connection, key)
        return None if question is None else question.again(SECOND_LOOK)

    def _mine(self, table: Any) -> Any:
        """A first answer of this annotator, or a skip of a first question."""
        first = table.c.repetition.is_(None) if table is judgements else table.c.repetition == 0
        return and_(table.c.annotator == self.annotator, first)

    def _question(self, row: Any) -> Question:
        sides = [Side(row["first_id"], row["text"], source_of(row, "first_"))]
        if row["second_id"] is not None:
            sides.append(Side(row["second_id"], row["second_text"], source_of(row, "second_")))
        return Question(row["id"], self.study.kind, row["content"], tuple(sides), self.study, row["gold"])


def _select() -> Select[Any]:
    return (
        select(items, prompts.c.content, responses.c.text, second.c.text.label("second_text"))
        .join(responses, responses.c.id == items.c.first_id)
        .join(prompts, prompts.c.id == responses.c.prompt_id)
        .outerjoin(second, second.c.id == items.c.second_id)
    )
