"""Studies as JSON, for their owner: how far each is, what came out, a new one, and where annotators differ."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import anyio.from_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ppolm.errors import FeedbackError
from ppolm.feedback.conflicts import Conflict, ask_second_look, find_conflicts, study_progress
from ppolm.feedback.exchange import loadable_rows
from ppolm.feedback.resolve import resolve
from ppolm.feedback.study import Study, all_studies, find_study
from ppolm.feedback.win_rates import WinRate, win_rates
from ppolm.feedback.write_rows import write_rows
from ppolm.messages import brief
from ppolm.studio.answers import BadRequestError, NotFoundError, choice, reads, whole, writes
from ppolm.studio.judge_words import bounded_content, bounded_text, study_json
from ppolm.studio.studio import Studio
from ppolm.studio.study_jobs import StudyJobs
from ppolm.studio.study_request import choices, study_arguments

KINDS = ("all", "preferences", "scores", "thumbs")
RULES = ("all", "latest", "majority", "mean")
CONFLICTS = 10
"""Conflicts on one page."""


class StudiesAPI:
    """The answers about studies."""

    def __init__(self, studio: Studio) -> None:
        self.studio, self.feedback = studio, studio.feedback
        self.jobs = StudyJobs()

    def list_studies(self, _: Request) -> Any:
        """All studies with progress and win rates, and what is being made."""
        store = self.feedback.existing()
        found: list[dict[str, Any]] = []
        if store is not None:
            rates = win_rates(self.feedback.records())
            for study in all_studies(store):
                mine = [_rate(rate) for rate in rates if rate.study == study.id]
                found.append({**_study(study), **vars(study_progress(store, study)), "rates": mine})
        return {"studies": found[::-1], "store": self.studio.store, "jobs": self.jobs.all()}

    def choices(self, request: Request) -> Any:
        """What can be judged of a run."""
        return choices(self.studio.workspace.run(request.query_params.get("run", "")))

    def make(self, _: Request, body: dict[str, Any]) -> Any:
        """Begin to make a study, in a process of its own."""
        arguments = study_arguments(self.studio.workspace, body, self.studio.store)
        return anyio.from_thread.run(self.jobs.start, arguments[2], arguments)

    def cancel(self, _: Request, body: dict[str, Any]) -> Any:
        """End the process that makes a study."""
        return anyio.from_thread.run(self.jobs.cancel, str(body.get("job")))

    def conflicts(self, request: Request) -> Any:
        """Items on which annotators differ, with what each said. Who wrote which answer stays hidden here too."""
        store, study = self.feedback.store(), self._study(request.query_params.get("study", ""))
        offset = whole(request, "offset", 0) or 0
        found = find_conflicts(store, study, CONFLICTS, offset)
        progress = study_progress(store, study)
        return {"study": _study(study), **vars(progress), "offset": offset, "conflicts": [_conflict(o) for o in found]}

    def second_look(self, _: Request, body: dict[str, Any]) -> Any:
        """Ask annotators again about what they differ on, or stop that."""
        study, wanted = self._study(str(body.get("study"))), body.get("wanted")
        if not isinstance(wanted, bool):
            raise BadRequestError(f"wanted is {brief(wanted)}, expected true or false.")
        with self.feedback.writing:
            ask_second_look(self.feedback.store(), study, wanted)
        return {"second_look": wanted}

    def export(self, request: Request) -> Response:
        """The judgements as a file that training reads, by the store's own exporter."""
        kind, rule = choice(request, "kind", "all", KINDS), choice(request, "rule", "all", RULES)
        name = request.query_params.get("study", "")
        study = self._study(name) if name else None
        records = self.feedback.store().records(None if kind == "all" else kind)  # type: ignore[arg-type]
        mine = [record for record in records if study is None or record.details.study == study.id]
        rows, problems = loadable_rows(resolve(mine, rule))  # type: ignore[arg-type]
        if not rows:
            raise NotFoundError(
                f"There is nothing to export: {len(problems)} judgements cannot be loaded by training."
                if problems
                else "There are no such judgements to export yet."
            )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "export.jsonl"
            write_rows(path, rows)
            content = path.read_bytes()
        title = re.sub(r"[^A-Za-z0-9]+", "-", study.name if study else "judgements").strip("-")[:60] or "study"
        headers = {"content-disposition": f'attachment; filename="{title}.jsonl"', "x-left-out": str(len(problems))}
        return Response(content, media_type="application/jsonl", headers=headers)

    def _study(self, id_: str) -> Study:
        try:
            return find_study(self.feedback.store(), id_)
        except FeedbackError as error:
            raise NotFoundError(str(error)) from None


def _study(study: Study) -> dict[str, Any]:
    settings = {name: getattr(study, name) for name in ("repeats", "second_look", "identical", "axes", "scale")}
    return {**study_json(study), **settings, "per_item": study.wanted, "time": study.time.isoformat()}


def _rate(rate: WinRate) -> dict[str, Any]:
    return {**vars(rate), "rate": vars(rate.rate)}


def _conflict(found: Conflict) -> dict[str, Any]:
    return {
        "item": found.item,
        "prompt": bounded_content(found.content),
        "sides": [bounded_text(text) for text in found.responses],
        "verdicts": [{**vars(one), "time": one.time.isoformat()} for one in found.verdicts],
    }


def routes(studio: Studio) -> list[Route]:
    """What the page of studies asks for."""
    api = StudiesAPI(studio)
    posts = {"make": api.make, "cancel": api.cancel, "second-look": api.second_look}
    return [
        Route("/api/studies", reads(api.list_studies)),
        Route("/api/studies/choices", reads(api.choices)),
        Route("/api/studies/conflicts", reads(api.conflicts)),
        Route("/api/studies/export", reads(api.export)),
        *(Route(f"/api/studies/{name}", writes(work), methods=["POST"]) for name, work in posts.items()),
    ]
