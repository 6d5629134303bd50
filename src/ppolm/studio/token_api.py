"""Tokens as JSON: stored steps, lists of responses, one response, explain and what if. Only visible parts are sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from ppolm.errors import PpolmError, RunFolderError
from ppolm.explain.settings import ESTIMATORS, LARGEST_COEF, StepSettings
from ppolm.studio.answers import NotFoundError, choice, part, reads, real, sentence, whole
from ppolm.studio.held_out_api import held_out_routes
from ppolm.studio.open_step import OpenStep, OpenSteps
from ppolm.studio.prompt_history import PromptHistory, key_of
from ppolm.studio.response_view import response_view
from ppolm.studio.step_overview import LARGEST_PAGE, SORTS, Filters, chosen, page_rows
from ppolm.studio.studio import Studio
from ppolm.studio.token_tables import logged_steps

LONGEST_SEARCH = 200
PAGE = 50


class TokenEndpoints:
    """Endpoints for the tokens of a studio's runs, with a cache of the most recently viewed steps."""

    def __init__(self, studio: Studio) -> None:
        self.workspace = studio.workspace
        self.opened, self.history = OpenSteps(), PromptHistory()

    def _run(self, request: Request) -> Path:
        return self.workspace.run(request.path_params["run"])

    def _step(self, request: Request) -> OpenStep:
        return open_step(self.opened, self._run(request), part(request, "step"))

    def steps(self, request: Request) -> Any:
        """The stored steps of a run."""
        return {"steps": logged_steps(self._run(request))}

    def step(self, request: Request) -> Any:
        """One step, without its tokens."""
        self.opened.warm()
        return describe(self._step(request), part(request, "step"))

    def responses(self, request: Request) -> Any:
        """A page of the list of responses."""
        return list_responses(self._step(request), request)

    def other_steps(self, request: Request) -> Any:
        """The stored steps with the same prompt."""
        table, prompt = self._step(request).table, part(request, "prompt")
        if not (table.owners == prompt).any():
            raise NotFoundError(f"The step has no prompt {prompt}.")
        found = self.history.steps_with(self._run(request), key_of(table, prompt))
        return {"steps": [{"step": step, "prompt": number} for step, number in found]}

    def response(self, request: Request) -> Any:
        """One response with its tokens."""
        step, sequence = response_of(self._step(request), request)
        return response_view(step.table, sequence, step.pieces)

    def explain(self, request: Request) -> Any:
        """The terms of a token's advantage."""
        step, sequence = response_of(self._step(request), request)
        token, length = part(request, "token"), int(step.table.lengths[sequence])
        if token >= length:
            raise NotFoundError(f"The response has {length} tokens; there is no token {token}.")
        return step.explained.explain(sequence, token)

    def what_if(self, request: Request) -> Any:
        """A response with other settings."""
        step, sequence = response_of(self._step(request), request)
        return step.explained.what_if(asked_settings(request, step.settings), sequence)


def routes(studio: Studio) -> list[Route]:
    """The routes of tokens and held-out samples."""
    ask, base = TokenEndpoints(studio), "/api/run/{run}/tokens"
    step, response = f"{base}/{{step}}", f"{base}/{{step}}/response/{{sequence}}"
    return [
        Route(base, reads(ask.steps)),
        Route(step, reads(ask.step)),
        Route(f"{step}/responses", reads(ask.responses)),
        Route(f"{step}/prompt/{{prompt}}", reads(ask.other_steps)),
        Route(response, reads(ask.response)),
        Route(f"{response}/explain/{{token}}", reads(ask.explain)),
        Route(f"{response}/what-if", reads(ask.what_if)),
        *held_out_routes(studio),
    ]


def open_step(opened: OpenSteps, run: Path, step: int) -> OpenStep:
    """A stored step; ``NotFoundError`` if the run has no such step, ``RunFolderError`` if it cannot be read."""
    try:
        return opened.get(run, step)
    except RunFolderError as error:
        if step not in logged_steps(run):
            raise NotFoundError(str(error)) from error
        raise


def response_of(step: OpenStep, request: Request) -> tuple[OpenStep, int]:
    """A step, and the response that a request names."""
    sequence = part(request, "sequence")
    if sequence >= step.table.num_responses:
        raise NotFoundError(f"The step has {step.table.num_responses} responses; there is no response {sequence}.")
    return step, sequence


def describe(step: OpenStep, number: int) -> dict[str, Any]:
    """A step without its tokens."""
    table = step.table
    try:
        settings: dict[str, Any] | None = step.settings.to_dict()
        unexplained = None
    except PpolmError as error:
        settings, unexplained = None, sentence(error)
    return {
        "step": number,
        "responses": table.num_responses,
        "tokens": int(table.offsets[-1]),
        "prompts": len(table.prompt_texts) or len(set(table.owners.tolist())),
        "columns": step.ranges,
        "places": step.places,
        "value_target": step.value_target,
        "settings": settings,
        "unexplained": unexplained,
        "largest_coef": LARGEST_COEF,
    }


def list_responses(step: OpenStep, request: Request) -> dict[str, Any]:
    """A page of the list of responses, and how many there are."""
    filters = asked_filters(request)
    offset, limit = whole(request, "offset", 0) or 0, whole(request, "limit", PAGE, 1, LARGEST_PAGE) or PAGE
    numbers = chosen(step.table, step.overview, filters)
    around = whole(request, "around", None)
    if around is not None and (found := (numbers == around).nonzero()[0]).size:
        offset = int(found[0]) // limit * limit
    rows = page_rows(step.table, step.overview, numbers[offset : offset + limit])
    return {"total": len(numbers), "offset": offset, "rows": rows}


def asked_filters(request: Request) -> Filters:
    """Which responses a request asks for."""
    ended = choice(request, "ended", "all", ("all", "yes", "no"))
    return Filters(
        sort=choice(request, "sort", "sequence", SORTS),
        descending=choice(request, "order", "up", ("up", "down")) == "down",
        ended=None if ended == "all" else ended == "yes",
        prompt=whole(request, "prompt", None),
        find=request.query_params.get("find", "")[:LONGEST_SEARCH],
    )


def asked_settings(request: Request, own: StepSettings) -> StepSettings:
    """The settings of a "what if": those of the step, with the changes of the request."""
    switches = {
        name: choice(request, name, str(getattr(own, name)).lower(), ("true", "false")) == "true"
        for name in ("whiten_rewards", "whiten_advantages")
    }
    return StepSettings(
        gamma=real(request, "gamma", own.gamma, 0.0, 1.0),
        lam=real(request, "lam", own.lam, 0.0, 1.0),
        reward_coef=real(request, "reward_coef", own.reward_coef, 0.0, LARGEST_COEF),
        kl_estimator=choice(request, "kl_estimator", own.kl_estimator, ESTIMATORS),
        **switches,
    )
