"""Which items of a study an annotator is asked next. All of it is found by indexes, however large the study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable

from ppolm.feedback.record import REPEAT, SECOND_LOOK, digest
from ppolm.feedback.study import Study
from ppolm.feedback.study_statements import (
    ANY_GOLD,
    ASKED,
    HISTORY,
    NEXT_LEVEL,
    REPEATS,
    SECOND_LOOKS,
    SOME_ITEMS,
    ItemsOf,
    items_left,
    next_items,
)
from ppolm.feedback.table_rows import source_of
from ppolm.feedback.task import Question, Side

REPEAT_DISTANCE = 5
"""Other tasks between a pair and its repeat, at least."""
REPEAT_WINDOW = 50
"""How far back a repeat may go beyond that."""
GOLD_SHARE = 0.1
"""Gold questions among the first tasks of an annotator, at least, as long as there are any."""
AT_ONCE = 10
"""Items that are read together, for the next questions of one plan."""


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
        self._past: list[str] | None = None
        """What this annotator judged last, the newest first; empty where it cannot come again."""

    def plan(self, connection: Connection, count: int, excluded: list[Question]) -> list[Question]:
        """The next questions, when ``excluded`` are already before the annotator."""
        asked, self._has_gold = self._asked(connection), self._any_gold(connection)
        self._ready, self._past = [], None
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

    def find(self, connection: Connection, keys: list[str]) -> dict[str, Question]:
        """The questions about those of the items that this study has."""
        rows = self._ask(connection, SOME_ITEMS, keys=keys).mappings() if keys else ()
        return {row["id"]: self._question(row) for row in rows}

    def left(self, connection: Connection) -> int:
        """How many items this annotator may still be asked about for the first time."""
        query = items_left(self.study.second_look)
        return max(0, int(self._ask(connection, query, wanted=self.study.wanted).scalar_one()))

    def _ask(self, connection: Connection, query: Executable, **given: Any) -> CursorResult[Any]:
        return connection.execute(query, {"study": self.study.id, "annotator": self.annotator, **given})

    def _asked(self, connection: Connection) -> Asked:
        asked = Asked()
        for repetition, gold, number in map(tuple, self._ask(connection, ASKED)):
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
        return self._ask(connection, ANY_GOLD).first() is not None

    def _gold(self, connection: Connection, taken: list[Question]) -> Question | None:
        """A question with a right answer; most studies have none, and then nothing is searched for each task."""
        return self._first_of(connection, "gold", taken) if self._has_gold else None

    def _fewest(self, connection: Connection, taken: list[Question]) -> Question | None:
        """An item without a right answer that still wants judgements, of those that have the fewest.

        Several are read at once: those that stand next are what the following calls of a plan ask for.
        """
        keys = {question.key for question in taken}
        self._ready = [question for question in self._ready if question.key not in keys]
        level = -1
        while not self._ready:
            found = self._ask(connection, NEXT_LEVEL, level=level).scalar()
            if found is None or found >= self.study.wanted:
                return None
            level = int(found)
            self._ready = self._some_of(connection, "level", taken, level=level)
        return self._ready[0]

    def _first_of(self, connection: Connection, kind: ItemsOf, taken: list[Question]) -> Question | None:
        """The next item of that kind, in this annotator's order, that was neither judged nor skipped."""
        return next(iter(self._some_of(connection, kind, taken, 1)), None)

    def _some_of(
        self, connection: Connection, kind: ItemsOf, taken: list[Question], count: int = AT_ONCE, level: int = 0
    ) -> list[Question]:
        """The next items of that kind; fewer than ``count`` do not mean that there are no more."""
        given: dict[str, Any] = {"chance": self.chance, "count": count, "taken": [question.key for question in taken]}
        given |= {"level": level} if kind == "level" else {}
        for from_start in (False, True):
            rows = self._ask(connection, next_items(kind, from_start), **given).mappings().all()
            if rows:
                return [self._question(row) for row in rows]
        return []

    def _repeat(self, connection: Connection, taken: list[Question]) -> Question | None:
        """A pair that this annotator judged a while ago, and was not asked again."""
        if self._past is None:  # read once for all questions of a plan
            history = self._ask(connection, HISTORY, count=REPEAT_DISTANCE + REPEAT_WINDOW).all()
            again = set(self._ask(connection, REPEATS).scalars())
            self._past = ["" if row.repetition or row.gold or row.item in again else str(row.item) for row in history]
        before = {question.key for question in taken}
        # What is before the annotator, and not yet judged, stands between too.
        old = self._past[max(0, REPEAT_DISTANCE - len(taken)) :]
        fit = [item for item in old if item and item not in before]
        for key in sorted(fit, key=lambda item: digest([item, self.annotator])):
            question = self.find(connection, [key]).get(key)
            if question is not None:
                return question.again(REPEAT)
        return None

    def _second_look(self, connection: Connection, taken: list[Question]) -> Question | None:
        """An item on which annotators differ: one that is new to this annotator, else one that is not."""
        fresh = self._first_of(connection, "disputed", taken)
        if fresh is not None:
            return fresh
        key = self._ask(connection, SECOND_LOOKS, taken=[question.key for question in taken]).scalar()
        question = None if key is None else self.find(connection, [key]).get(key)
        return None if question is None else question.again(SECOND_LOOK)

    def _question(self, row: Any) -> Question:
        sides = [Side(row["first_id"], row["text"], source_of(row, "first_"))]
        if row["second_id"] is not None:
            sides.append(Side(row["second_id"], row["second_text"], source_of(row, "second_")))
        return Question(row["id"], self.study.kind, row["content"], tuple(sides), self.study, row["gold"])
