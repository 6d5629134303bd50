"""Reward models as JSON: those that were found, one with its readiness report, and scores of any text."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import Route

from ppolm.messages import brief
from ppolm.runs.run_overview import read_settings
from ppolm.studio.answers import NotFoundError, reads
from ppolm.studio.model_answers import asks_model
from ppolm.studio.reward_folders import RewardFolder, at_a_glance, find_reward_models, in_full
from ppolm.studio.studio import Studio
from ppolm.studio.worker_process import ModelChoice
from ppolm.studio.workspace import Workspace

ASKED = ("prompt", "answers", "unit")


class Shelf:
    """The reward models of a studio, by id."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._lock = threading.Lock()
        self._settings: dict[Path, tuple[Any, dict[str, Any]]] = {}
        """What runs were started with, by their folder, and when that was written."""

    def all(self) -> dict[str, RewardFolder]:
        """Every reward model that can be reached from the studio's folders now."""
        runs = self.workspace.runs()
        return find_reward_models(self.workspace.folders, runs, {run: self._of(path) for run, path in runs.items()})

    def one(self, reward_id: str) -> RewardFolder:
        """A reward model by its id."""
        found = self.all().get(reward_id)
        if found is None:
            raise NotFoundError(f"There is no reward model {brief(reward_id)} here. It may have been moved or removed.")
        return found

    def _of(self, run: Path) -> Mapping[str, Any]:
        """The settings of a run, read once as long as they stay the same."""
        try:
            mark = (run / "config.yaml").stat().st_mtime_ns
        except OSError:
            return {}
        with self._lock:
            known = self._settings.get(run)
        if known is None or known[0] != mark:
            known = (mark, read_settings(run))
            with self._lock:
                self._settings[run] = known
        return known[1]


def routes(studio: Studio) -> list[Route]:
    """What there is to ask about reward models."""
    shelf = Shelf(studio.workspace)

    def list_rewards(_: Request) -> Any:
        return {
            "rewards": [at_a_glance(one) for one in shelf.all().values()],
            "folders": [str(folder) for folder in studio.workspace.folders],
        }

    def one_reward(request: Request) -> Any:
        return in_full(shelf.one(request.path_params["reward"]))

    async def score(request: Request, body: dict[str, Any]) -> Any:
        found = await run_in_threadpool(shelf.one, request.path_params["reward"])
        asked = {name: body[name] for name in ASKED if name in body}
        return await studio.models.ask(ModelChoice("reward", found.path), asked)

    return [
        Route("/api/rewards", reads(list_rewards)),
        Route("/api/reward/{reward}", reads(one_reward)),
        Route("/api/reward/{reward}/score", asks_model(studio, score), methods=["POST"]),
    ]
