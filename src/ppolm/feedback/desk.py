"""One place that decides what an annotator is asked next, for the terminal and the web page alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, func, or_, select

from ppolm.errors import FeedbackError
from ppolm.feedback.queue_questions import BETWEEN, QueueQuestions
from ppolm.feedback.record import Record, now
from ppolm.feedback.statements import insert_new
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Ask, Study, all_studies, find_study
from ppolm.feedback.study_questions import StudyQuestions
from ppolm.feedback.tables import judgements, skips
from ppolm.feedback.task import Answer, Question, Task, answered, judgement_id, key_of, matching, task_of
from ppolm.feedback.transactions import transact
from ppolm.messages import brief

MOST_TASKS = 50
"""Tasks that may be asked for at once."""


@dataclass(frozen=True)
class Progress:
    """How far an annotator is."""

    done: int
    """Their judgements within the desk's scope."""
    left: int
    """What they may still be asked, repeats not counted."""
    waiting: int
    """Responses that a live run waits for."""


class Desk:
    """The questions to one annotator, and their answers.

    A desk for a study asks about its items; one for a run, about what that run has queued. A desk for neither asks
    what a live run waits for (the oldest wait first), then the items of all studies, then the rest of the queue.
    Nothing is kept in memory: desks of the same annotator in other processes agree with each other.
    """

    def __init__(
        self,
        store: FeedbackStore,
        annotator: str,
        study: str | None = None,
        ask: Ask | None = None,
        run: str | None = None,
    ) -> None:
        """``ask`` is how queued responses are judged (a score, unless told), and which studies are asked about."""
        if study is not None and run is not None:
            raise FeedbackError("A desk is for a study or for a run, not for both. Leave one of them out.")
        self.store, self.annotator, self.ask, self.run = store, annotator, ask, run
        self.study: Study | None = None if study is None else find_study(store, study)
        if self.study is not None and ask not in (None, self.study.kind):
            raise FeedbackError(f"Study {brief(self.study.name)} asks for a {self.study.kind}, not for a {ask}.")
        self._queue = QueueQuestions(ask or "score", annotator, run)

    def next(self, count: int = 1, exclude: Iterable[str] = (), counted: bool = True) -> list[Task]:
        """The next tasks; ``exclude`` names tasks that are before the annotator already, and count as asked.

        How many are left is said only if it is to be ``counted``, which takes longer than finding them.
        """
        open_, count = list(exclude)[:MOST_TASKS], max(0, min(count, MOST_TASKS))
        studies = self._studies()

        def work(connection: Connection) -> list[Task]:
            excluded = [question for id_ in open_ if (question := self._find(connection, id_, studies)) is not None]
            found: list[Question] = []
            if self.study is None:
                found += self._queue.plan(connection, count, excluded, live=True)
            for study in studies:
                about = StudyQuestions(study, self.annotator)
                mine = [question for question in excluded if question.study == study]
                found += about.plan(connection, count - len(found), mine) if len(found) < count else []
            if self.study is None and len(found) < count:
                found += self._queue.plan(connection, count - len(found), excluded, live=False)
            left = self._left(connection, studies) if found and counted else 0
            first = [max(1, left - i) if counted else 0 for i in range(len(found))]
            return [task_of(question, self.annotator, number) for question, number in zip(found, first, strict=True)]

        return transact(self.store.engine, work)

    def task(self, task_id: str) -> Task:
        """The task with that id, as this annotator sees it."""
        return task_of(self._question(task_id), self.annotator)

    def commit(
        self, task_id: str, answer: Answer | str | float, seconds: float | None = None, note: str | None = None
    ) -> Record:
        """Store an answer. Sent again it changes nothing; another answer to the same task is refused."""
        said = answer if isinstance(answer, Answer) else Answer(answer)
        record = answered(self._question(task_id), self.annotator, said, seconds, note)
        try:
            self.store.add([record])
        except FeedbackError as error:
            if "says something else" not in str(error):
                raise
            raise FeedbackError("This task was answered before, with another answer. Undo that one first.") from None
        return record

    def skip(self, task_id: str) -> None:
        """Do not ask this annotator again; others are still asked."""
        question = self._question(task_id)
        row = {
            "task": task_id,
            "kind": question.kind,
            "annotator": self.annotator,
            "study": question.study.id if question.study else None,
            "item": question.key,
            "run": None if question.study else question.sides[0].source.run,
            "repetition": question.repetition,
            "time": now(),
        }
        transact(self.store.engine, lambda connection: insert_new(connection, skips, {task_id: row}), write=True)

    def undo(self) -> Task | None:
        """Take back this annotator's last judgement or skip within the desk's scope, and return its task."""
        task = self.last()
        return None if task is None else self.take_back(task.id)

    def last(self) -> Task | None:
        """The task of this annotator's last judgement or skip within the desk's scope."""
        studies = self._studies()

        def work(connection: Connection) -> Question | None:
            found: list[Any] = []
            for table in (judgements, skips):
                newest = select(table).where(self._scope(table, studies)).order_by(table.c.time.desc()).limit(1)
                found += connection.execute(newest).mappings().all()
            if not found:
                return None
            row = max(found, key=lambda one: one["time"])  # of two at once the first, which is the judgement
            question = self._find_key(connection, row["item"], studies)
            return None if question is None else question.again(row["repetition"] or 0)

        question = transact(self.store.engine, work)
        return None if question is None else task_of(question, self.annotator)

    def take_back(self, task_id: str) -> Task:
        """Take back the answer to a task, or its skip, so that it is asked again; where there is none, do nothing."""
        question = self._question(task_id)
        gone = delete(skips).where(skips.c.task == task_id)
        transact(self.store.engine, lambda connection: connection.execute(gone), write=True)
        self.store.remove_id(judgement_id(task_id), question.key)
        return task_of(question, self.annotator)

    def progress(self) -> Progress:
        """How much is done and left."""
        studies = self._studies()

        def work(connection: Connection) -> Progress:
            done = select(func.count()).select_from(judgements).where(self._scope(judgements, studies))
            waiting = self._queue.waiting(connection) if self.study is None else 0
            return Progress(connection.execute(done).scalar_one(), self._left(connection, studies), waiting)

        return transact(self.store.engine, work)

    def _left(self, connection: Connection, studies: list[Study]) -> int:
        queued = len(self._queue.keys(connection, None)) if self.study is None else 0
        return queued + sum(StudyQuestions(study, self.annotator).left(connection) for study in studies)

    def _studies(self) -> list[Study]:
        """The studies within the scope of this desk."""
        if self.study is not None:
            return [self.study]
        if self.run is not None:
            return []
        return [study for study in all_studies(self.store) if self.ask in (None, study.kind)]

    def _scope(self, table: Any, studies: list[Study]) -> Any:
        """What of a table belongs to this desk: answers to tasks, never what was imported without one."""
        ids = [study.id for study in studies]
        asked = and_(table.c.annotator == self.annotator, table.c.item.is_not(None), table.c.study.in_(ids))
        return asked if self.study is not None else or_(asked, self._queue.asked_in(table))

    def _question(self, id_: str) -> Question:
        """What a task asks; raises if there is no such task for this annotator here."""
        studies = self._studies()
        found = transact(self.store.engine, lambda connection: self._find(connection, id_, studies))
        if found is None:
            raise FeedbackError(
                f"There is no task {brief(id_)} here for {brief(self.annotator)}. Ask for the next one."
            )
        return found

    def _find(self, connection: Connection, id_: str, studies: list[Study]) -> Question | None:
        question = self._find_key(connection, key_of(str(id_)), studies)
        return None if question is None else matching(question, self.annotator, id_)

    def _find_key(self, connection: Connection, key: str, studies: list[Study]) -> Question | None:
        if not key.replace(BETWEEN, "").isalnum() or not key.isascii():
            return None
        if self.study is None and len(key) >= 64:
            return self._queue.find(connection, key)
        about = (StudyQuestions(study, self.annotator).find(connection, key) for study in studies)
        return next((question for question in about if question is not None), None)
