"""Runs as JSON: the list, one run, its metrics, and several side by side."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import URL
from starlette.requests import Request
from starlette.routing import Route

from ppolm.errors import FeedbackError
from ppolm.feedback.connection import store_url
from ppolm.feedback.transactions import shown
from ppolm.runs.metrics_tail import Row
from ppolm.runs.run_figures import differing_settings, final_figures, gains
from ppolm.runs.run_overview import RECENT, read_settings, seconds_left
from ppolm.runs.run_status import read_status
from ppolm.runs.run_warnings import is_alarm
from ppolm.studio.answers import BadRequestError, reads, whole
from ppolm.studio.studio import Studio

MOST_COMPARED = 8


class RunAPI:
    """The answers about runs."""

    def __init__(self, studio: Studio) -> None:
        self.studio, self.workspace = studio, studio.workspace

    def list_runs(self, _: Request) -> Any:
        """All runs at a glance."""
        found = self.workspace.runs()
        rows = [
            {"id": run_id, **waiting_for_people(self.studio, self.workspace.overview(path).to_dict())}
            for run_id, path in found.items()
        ]
        return {"runs": rows, "folders": [str(folder) for folder in self.workspace.folders]}

    def one_run(self, request: Request) -> Any:
        """Everything about a run but its series."""
        run_id = request.path_params["run"]
        return describe(self.studio, run_id, self.workspace.run(run_id))

    def metrics(self, request: Request) -> Any:
        """The series of a run, or what was added to them since a step that a page has already seen."""
        tail = self.workspace.metrics(self.workspace.run(request.path_params["run"]))
        since = whole(request, "since", 0) if whole(request, "generation", 0) == tail.generation else 0
        train = [row for row in tail.rows() if row["step"] > (since or 0)]
        return {
            "generation": tail.generation,
            "train": as_columns(train),
            "evaluations": tail.rows("eval"),  # few, and a resume may change their verdicts
        }

    def compare(self, request: Request) -> Any:
        """Several runs side by side."""
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 1 <= len(names) <= MOST_COMPARED:
            raise BadRequestError(f"{len(names)} runs are to be compared; choose from 2 to {MOST_COMPARED}.")
        paths = {name: self.workspace.run(name) for name in names}
        tails = {name: self.workspace.metrics(path) for name, path in paths.items()}
        return {
            "runs": {name: describe(self.studio, name, path) for name, path in paths.items()},
            "metrics": {name: as_columns(tail.rows()) for name, tail in tails.items()},
            "evaluations": {name: tail.rows("eval") for name, tail in tails.items()},
            "differing": differing_settings({name: read_settings(path) for name, path in paths.items()}),
        }


def routes(studio: Studio) -> list[Route]:
    """What there is to ask about runs."""
    api = RunAPI(studio)
    return [
        Route("/api/runs", reads(api.list_runs)),
        Route("/api/run/{run}", reads(api.one_run)),
        Route("/api/run/{run}/metrics", reads(api.metrics)),
        Route("/api/compare", reads(api.compare)),
    ]


def describe(studio: Studio, run_id: str, path: Path) -> dict[str, Any]:
    """Everything about a run but its series."""
    seen, status = studio.workspace.overview(path), read_status(path)
    tail = studio.workspace.metrics(path)
    evaluations = tail.rows("eval")
    left = seconds_left(tail.rows()[-RECENT:], seen.total_steps - seen.step)
    return {
        "id": run_id,
        **waiting_for_people(studio, {**seen.to_dict(), "seconds_left": left if seen.state == "running" else None}),
        "path": shown_path(path),
        "reasons": status.reasons if status else (),
        "settings": read_settings(path),
        "other_store": other_store(studio, read_settings(path)) if seen.state == "running" else None,
        "resume": f"ppolm train --resume {shlex.quote(shown_path(path))}",
        "figures": final_figures(evaluations, seen.best_step),
        "gains": gains(evaluations, seen.best_step),
        "alarms": [alarm(row) for row in evaluations if is_alarm(row)],
    }


def shown_path(path: Path) -> str:
    """A path as one would type it here: relative to the folder that the studio was started in, if it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def waiting_for_people(studio: Studio, seen: dict[str, Any]) -> dict[str, Any]:
    """A run at a glance; one that runs and stands still until people have judged its responses says so."""
    waits = studio.waiting.of(seen["name"]) if seen["state"] == "running" else None
    return seen if waits is None else {**seen, "state": "waiting", "seconds_left": None, "waits": waits.to_dict()}


def other_store(studio: Studio, settings: Mapping[str, Any]) -> dict[str, str] | None:
    """Where a run asks people for judgements, if that is not the store whose questions this studio shows."""
    reward, place = settings.get("reward"), settings.get("feedback_store")
    asks = [*(reward if isinstance(reward, list) else [reward]), settings.get("judge")]
    if "human" not in asks or not isinstance(place, str):
        return None
    try:
        theirs, ours = store_url(place), store_url(studio.store)
    except FeedbackError:  # a name that is no store: the run says so itself
        return None
    if theirs == ours or (theirs.drivername == ours.drivername == "sqlite" and _file(theirs) == _file(ours)):
        return None
    return {"run": shown(theirs), "studio": shown(ours)}


def _file(url: URL) -> Path:
    return Path(url.database or "").resolve()


def alarm(row: Row) -> dict[str, Any]:
    """An evaluation that raised one."""
    return {"step": row["step"], "status": row["status"]}


def as_columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Rows as columns of equal length: a chart takes them as they are, and names are sent once."""
    names = dict.fromkeys(name for row in rows for name in row if name != "kind")
    return {name: [_numeric(row.get(name)) for row in rows] for name in names}


def _numeric(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else None
