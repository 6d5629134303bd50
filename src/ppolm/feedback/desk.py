"""One place that decides what an annotator is asked next, for the terminal and the web page alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import Connection, Executable, Result, Select, and_, bindparam, delete, func, or_, select

from ppolm.errors import FeedbackError
from ppolm.feedback.queue_questions import BETWEEN, QueueQuestions, asked_in
from ppolm.feedback.record import Record, now
from ppolm.feedback.statements import insert_new
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Ask, Study, find_study, read_studies
from ppolm.feedback.study_questions import StudyQuestions
from ppolm.feedback.tables import judgements, skips
from ppolm.feedback.task import Answer, Question, Task, answered, judgement_id, key_of, matching, task_id, task_of
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

    def next(self, count: int = 1, exclude: Iterable[str] = ()) -> list[Task]:
        """The next tasks, with how many are left; ``exclude`` as for ``ahead``."""
        tasks, progress = self.ahead(count, exclude, progress=True)
        left = progress.left if progress is not None else 0
        return [replace(task, left=max(1, left - number)) for number, task in enumerate(tasks)]

    def ahead(
        self, count: int, exclude: Iterable[str] = (), progress: bool = False
    ) -> tuple[list[Task], Progress | None]:
        """The next tasks, and on demand how far the annotator is; ``exclude`` names tasks that they have already.

        Those count as asked. Everything is read in one transaction, since many people may begin in the same moment.
        """
        open_, count = list(exclude)[:MOST_TASKS], max(0, min(count, MOST_TASKS))

        def work(connection: Connection) -> tuple[list[Task], Progress | None]:
            studies = self._studies(connection)
            excluded = self._find(connection, open_, studies)
            found: list[Question] = []
            if self.study is None:
                found += self._queue.plan(connection, count, excluded, live=True)
            for study in studies:
                about = StudyQuestions(study, self.annotator)
                mine = [question for question in excluded if question.study == study]
                found += about.plan(connection, count - len(found), mine) if len(found) < count else []
            if self.study is None and len(found) < count:
                found += self._queue.plan(connection, count - len(found), excluded, live=False)
            tasks = [task_of(question, self.annotator) for question in found]
            return tasks, self._progress(connection, studies) if progress else None

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

    def commit_all(self, answers: Mapping[str, Answer | str | float]) -> None:
        """Store the answers to several tasks, by their ids, in one transaction: all or none."""
        said = [answer if isinstance(answer, Answer) else Answer(answer) for answer in answers.values()]
        questions = self._questions(list(answers))
        self.store.add([answered(question, self.annotator, one) for question, one in zip(questions, said, strict=True)])

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

        def work(connection: Connection) -> Question | None:
            studies, found = self._studies(connection), list[Any]()
            for table in (judgements, skips):
                mine = _scope(table, self._queue.kind, self.study is not None, self.run is not None)
                newest = select(table).where(mine).order_by(table.c.time.desc()).limit(1)
                found += self._ask(connection, newest, studies).mappings().all()
            if not found:
                return None
            row = max(found, key=lambda one: one["time"])  # of two at once the first, which is the judgement
            (question,) = self._find_keys(connection, [row["item"]], studies).values() or (None,)
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
        return transact(self.store.engine, lambda connection: self._progress(connection, self._studies(connection)))

    def _progress(self, connection: Connection, studies: list[Study]) -> Progress:
        done = _done(self._queue.kind, self.study is not None, self.run is not None)
        left = sum(StudyQuestions(study, self.annotator).left(connection) for study in studies)
        waiting = 0
        if self.study is None:
            left += len(self._queue.keys(connection, None))
            waiting = self._queue.waiting(connection)
        return Progress(self._ask(connection, done, studies).scalar_one(), left, waiting)

    def _studies(self, connection: Connection) -> list[Study]:
        """The studies within the scope of this desk."""
        if self.study is not None:
            return [self.study]
        if self.run is not None:
            return []
        return [study for study in read_studies(connection) if self.ask in (None, study.kind)]

    def _ask(self, connection: Connection, query: Executable, studies: list[Study]) -> Result[Any]:
        return connection.execute(query, self._queue.given() | {"studies": [study.id for study in studies]})

    def _question(self, id_: str) -> Question:
        """What a task asks; raises if there is no such task for this annotator here."""
        return self._questions([id_])[0]

    def _questions(self, ids: list[str]) -> list[Question]:
        """What tasks ask, in their order; raises if one of them is not there for this annotator."""

        def work(connection: Connection) -> list[Question]:
            return self._find(connection, ids, self._studies(connection))

        found = transact(self.store.engine, work)
        if len(found) < len(ids):
            known = {task_id(question, self.annotator) for question in found}
            absent = next(id_ for id_ in ids if id_ not in known)
            raise FeedbackError(
                f"There is no task {brief(absent)} here for {brief(self.annotator)}. Ask for the next one."
            )
        return found

    def _find(self, connection: Connection, ids: list[str], studies: list[Study]) -> list[Question]:
        """What these tasks ask, as far as they are tasks for this annotator here."""
        about = self._find_keys(connection, [key_of(id_) for id_ in ids], studies)
        found = (matching(about[key_of(id_)], self.annotator, id_) for id_ in ids if key_of(id_) in about)
        return [question for question in found if question is not None]

    def _find_keys(self, connection: Connection, keys: list[str], studies: list[Study]) -> dict[str, Question]:
        found: dict[str, Question] = {}
        valid = [key for key in keys if key.replace(BETWEEN, "").isalnum() and key.isascii()]
        queued = [key for key in valid if self.study is None and len(key) >= 64]
        for key in queued:
            question = self._queue.find(connection, key)
            found |= {} if question is None else {key: question}
        for study in studies:
            found |= StudyQuestions(study, self.annotator).find(connection, [key for key in valid if key not in queued])
        return found


def _scope(table: Any, kind: Ask, one_study: bool, one_run: bool) -> Any:
    """What of a table belongs to a desk: answers to tasks, never what was imported without one."""
    ours = table.c.study.in_(bindparam("studies", expanding=True))
    asked = and_(table.c.annotator == bindparam("annotator"), table.c.item.is_not(None), ours)
    return asked if one_study else or_(asked, asked_in(table, kind, one_run))


@cache
def _done(kind: Ask, one_study: bool, one_run: bool) -> Select[Any]:
    return select(func.count()).select_from(judgements).where(_scope(judgements, kind, one_study, one_run))
