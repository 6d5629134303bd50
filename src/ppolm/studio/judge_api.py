"""Judging as JSON: the next tasks, answers, and taking them back. Blind, and each task stored once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ppolm.errors import FeedbackError, NoStoreError, PpolmError
from ppolm.feedback.desk import Desk
from ppolm.feedback.study import all_studies
from ppolm.studio.answers import BadRequestError, reads, sentence, writes
from ppolm.studio.feedback_access import is_passing
from ppolm.studio.gate import problem
from ppolm.studio.judge_words import (
    annotator_of,
    answer_of,
    answers_of,
    as_many_as_fit,
    id_of,
    ids_of,
    scope_of,
    study_json,
    task_json,
)
from ppolm.studio.studio import Studio
from ppolm.studio.visitors import Visitor

THREADS = 4
"""How many judging requests are worked on at once. They are short and keep Python busy, so that more in parallel only
hinder each other: with 40, a hundred people who begin in the same moment wait half as long again."""
MOST_AT_ONCE = 20
"""Tasks that a page may have loaded before they are shown."""
NOTHING = {"done": 0, "left": 0, "waiting": 0}


class JudgeAPI:
    """The answers to a judging page."""

    def __init__(self, studio: Studio) -> None:
        self.studio, self.feedback = studio, studio.feedback

    def about(self, request: Request) -> Any:
        """Who judges, and which studies there are."""
        visitor: Visitor = request.scope["visitor"]
        store = self.feedback.existing()
        studies = [] if store is None else all_studies(store)
        return {
            "owner": visitor.is_owner,
            "annotator": visitor.annotator,
            "studies": [study_json(study) for study in studies],
        }

    def waiting(self, request: Request) -> Any:
        """Whether a run waits: to its owner which, and for how many responses; to annotators no more than that."""
        found = self.studio.waiting.all()
        if not request.scope["visitor"].is_owner:
            return {"waiting": bool(found)}
        return {"waiting": bool(found), "runs": [one.to_dict() for one in found]}

    def next(self, request: Request, body: dict[str, Any]) -> Any:
        """The next tasks, besides those that the page has already; with ``progress``, how far the annotator is."""
        self._annotator(request, body)
        if self.feedback.existing() is None:
            return {"tasks": [], "progress": NOTHING}
        count = body.get("count", 1)
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_AT_ONCE:
            raise BadRequestError(f"Expected a count from 1 to {MOST_AT_ONCE}.")
        desk, exclude = self._desk(request, body), ids_of(body.get("exclude"))
        tasks, progress = desk.ahead(count, exclude, progress=body.get("progress") is True)
        return {"tasks": as_many_as_fit(tasks), "progress": None if progress is None else vars(progress)}

    def answer(self, request: Request, body: dict[str, Any]) -> Any:
        """Store answers and skips. One that is sent again changes nothing; one that is wrong does not stop others."""
        given = answers_of(body)
        self._annotator(request, body)
        try:
            desk = self._desk(request, body)
        except FeedbackError as error:
            if isinstance(error, NoStoreError) or is_passing(error):
                return _later(error)
            raise
        stored, refused = [], []
        for one in given:
            try:
                with self.feedback.writing:
                    _store(desk, one)
                stored.append(one["task"])
            except PpolmError as error:
                if isinstance(error, FeedbackError) and is_passing(error):
                    return _later(error)
                refused.append({"task": one["task"], "error": sentence(error)})
        return {"stored": stored, "refused": refused}

    def last(self, request: Request, body: dict[str, Any]) -> Any:
        """The task that this annotator answered last."""
        task = self._desk(request, body).last()
        return {"task": None if task is None else task_json(task)}

    def undo(self, request: Request, body: dict[str, Any]) -> Any:
        """Take back the answer to a task. Asked twice it changes nothing more."""
        desk = self._desk(request, body)
        with self.feedback.writing:
            task = desk.take_back(id_of(body.get("task")))
        return {"task": task_json(task)}

    def _annotator(self, request: Request, body: Mapping[str, Any]) -> str:
        return annotator_of(request.scope["visitor"], self.studio.keys, body.get("annotator"))

    def _desk(self, request: Request, body: Mapping[str, Any]) -> Desk:
        study, ask = scope_of(body)
        return Desk(self.feedback.store(), self._annotator(request, body), study, None if study else ask)


def _store(desk: Desk, given: Mapping[str, Any]) -> None:
    if given.get("skip") is True:
        desk.skip(given["task"])
    else:
        answer, seconds, note = answer_of(given)
        desk.commit(given["task"], answer, seconds, note)


def _later(error: FeedbackError) -> Response:
    """The page keeps its answers and sends them again."""
    return problem(503, sentence(error))


def routes(studio: Studio) -> list[Route]:
    """What a judging page asks for."""
    api, threads = JudgeAPI(studio), CapacityLimiter(THREADS)
    posts = {"next": api.next, "answer": api.answer, "last": api.last, "undo": api.undo}
    return [
        Route("/api/judge/about", reads(api.about, threads)),
        Route("/api/judge/waiting", reads(api.waiting, threads)),
        *(Route(f"/api/judge/{name}", writes(work, threads), methods=["POST"]) for name, work in posts.items()),
    ]
