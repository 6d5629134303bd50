"""The server's application: every feature's routes behind one gate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from ppolm.studio import (
    judge_api,
    live,
    pages,
    people_api,
    reward_api,
    run_api,
    studies_api,
    token_api,
    try_api,
)
from ppolm.studio.gate import App, BodyTooLargeError, Gate, host_names, problem
from ppolm.studio.studio import Studio

FEATURES = (
    *(run_api.routes, token_api.routes, live.routes, judge_api.routes, studies_api.routes, people_api.routes),
    *(reward_api.routes, try_api.routes, pages.routes),
)
"""Each gives its routes for a studio. Pages come last: they hold the static files."""


def make_app(studio: Studio) -> App:
    """All of it, as an ASGI application."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await studio.models.close()

    inner = Starlette(routes=[route for routes in FEATURES for route in routes(studio)], lifespan=lifespan)
    inner.add_exception_handler(404, _not_found)
    inner.add_exception_handler(405, _not_found)
    inner.add_exception_handler(BodyTooLargeError, _too_large)
    everywhere = studio.host in ("0.0.0.0", "::")
    return Gate(inner, studio.keys, studio.port, host_names(studio.host), any_address=everywhere)


async def _not_found(_: Request, __: Exception) -> Response:
    return problem(404, "There is nothing at this address.")


async def _too_large(_: Request, error: Exception) -> Response:
    return problem(413, str(error))
