"""Held-out samples as JSON: the evaluations of a run, their samples, and one sample over all evaluations."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from ppolm.runs.held_out_samples import HeldOutSamples
from ppolm.studio.answers import NotFoundError, part, reads, whole
from ppolm.studio.studio import Studio

LARGEST_PAGE = 200
LONGEST_TEXT = 100_000
PREVIEW = 160
MOST_RUNS = 16
"""Cached indexes of samples, those of the most recently viewed runs."""


class RunsSamples:
    """The held-out samples of the most recently viewed runs."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, HeldOutSamples] = OrderedDict()
        self._lock = Lock()

    def of(self, run: Path) -> HeldOutSamples:
        """Those of one run."""
        with self._lock:
            samples = self._kept.pop(run, None) or HeldOutSamples(run)
            self._kept[run] = samples
            while len(self._kept) > MOST_RUNS:
                self._kept.popitem(last=False)
        return samples


def held_out_routes(studio: Studio) -> list[Route]:
    """The routes of held-out samples."""
    runs = RunsSamples()

    def samples_of(request: Request) -> HeldOutSamples:
        return runs.of(studio.workspace.run(request.path_params["run"]))

    def steps(request: Request) -> Any:
        return {"steps": samples_of(request).steps()}

    def samples(request: Request) -> Any:
        found, step = samples_of(request), part(request, "step")
        rewards = _known(found, step)
        offset, limit = whole(request, "offset", 0) or 0, whole(request, "limit", 50, 1, LARGEST_PAGE) or 50
        numbers = list(rewards)[offset : offset + limit]
        rows = [{"number": number, "reward": rewards[number], **_preview(found, step, number)} for number in numbers]
        return {"total": len(rewards), "offset": offset, "rows": rows}

    def sample(request: Request) -> Any:
        found, step, number = samples_of(request), part(request, "step"), part(request, "number")
        row = found.sample(step, number) if number in _known(found, step) else None
        if row is None:
            raise NotFoundError(f"The evaluation at step {step} has no sample {number}.")
        every = {one: found.rewards(one) for one in found.steps()}
        over = [{"step": one, "reward": rewards[number]} for one, rewards in every.items() if number in rewards]
        return {"step": step, "number": number, "over": over, "reward": found.rewards(step)[number], **_texts(row)}

    base = "/api/run/{run}/held-out"
    return [
        Route(base, reads(steps)),
        Route(f"{base}/{{step}}", reads(samples)),
        Route(f"{base}/{{step}}/{{number}}", reads(sample)),
    ]


def _known(found: HeldOutSamples, step: int) -> dict[int, float | None]:
    rewards = found.rewards(step)
    if not rewards:
        raise NotFoundError(f"The run has no held-out samples of step {step}.")
    return rewards


def _preview(found: HeldOutSamples, step: int, number: int) -> dict[str, str]:
    row = found.sample(step, number) or {}
    return {"preview": _text(row.get("response"))[:PREVIEW]}


def _texts(row: dict[str, Any]) -> dict[str, str]:
    return {name: _text(row.get(name))[:LONGEST_TEXT] for name in ("prompt", "response")}


def _text(value: Any) -> str:
    """A prompt is a text, or a chat: its turns, one after the other."""
    if isinstance(value, list):
        turns = [turn for turn in value if isinstance(turn, dict)]
        return "\n\n".join(f"{turn.get('role', '')}:\n{turn.get('content', '')}" for turn in turns)
    return value if isinstance(value, str) else ""
