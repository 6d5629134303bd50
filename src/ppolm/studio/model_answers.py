"""Endpoints that ask a loaded model: they may take long, and end when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from threading import Event
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ppolm.errors import ModelProcessError, PpolmError
from ppolm.studio.answers import Endpoint, NotFoundError, json_answer, sent_object, sentence
from ppolm.studio.gate import problem
from ppolm.studio.model_workers import ModelsBusyError
from ppolm.studio.studio import Studio

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.3
"""How often to look whether the browser still waits."""


class GoneError(Exception):
    """The browser does not wait any more."""


def asks_model(studio: Studio, work: Callable[[Request, dict[str, Any]], Awaitable[Any]]) -> Endpoint:
    """An endpoint that is sent a JSON object and waits for a model."""

    @wraps(work)
    async def endpoint(request: Request) -> Response:
        try:
            body = await sent_object(request)
            return json_answer(await while_waited_for(request, studio.closing, work(request, body)))
        except NotFoundError as error:
            return problem(404, sentence(error))
        except ModelsBusyError as error:
            return problem(503, sentence(error))
        except PpolmError as error:
            return problem(400, sentence(error))
        except GoneError:
            return problem(499, "Nobody waits for this answer.")
        except Exception:
            log.exception("%s failed", request.url.path)
            return problem(500, "Something went wrong here; the terminal that runs `ppolm studio` says what.")

    return endpoint


async def while_waited_for(request: Request, closing: Event, work: Awaitable[Any]) -> Any:
    """The result of some work, which is cancelled if the browser goes away, or the server is told to end."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=LOOK_SECONDS))[0]:
            if closing.is_set():
                raise ModelProcessError("The studio is closing.")
            if await request.is_disconnected():
                raise GoneError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, PpolmError):
                await task
