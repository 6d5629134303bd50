"""Requests in, JSON out: checked parameters, errors as sentences, NaN as null."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from ppolm.errors import PpolmError
from ppolm.messages import brief, cut, printable
from ppolm.studio.gate import problem

log = logging.getLogger(__name__)
Endpoint = Callable[[Request], Awaitable[Response]]
LONGEST_SENTENCE = 600


class NotFoundError(PpolmError):
    """What an address names is not there."""


class BadRequestError(PpolmError):
    """What a request asks for cannot be understood."""


def reads(work: Callable[[Request], Any], threads: CapacityLimiter | None = None) -> Endpoint:
    """An endpoint that looks something up, in a thread: files and databases must not hold up other requests.

    ``threads`` bounds how many run at once; those that share it wait for each other, and for nobody else.
    """

    @wraps(work)
    async def endpoint(request: Request) -> Response:
        return await _answer(request, lambda: work(request), threads)

    return endpoint


def writes(work: Callable[[Request, dict[str, Any]], Any], threads: CapacityLimiter | None = None) -> Endpoint:
    """An endpoint that is sent a JSON object; ``threads`` as for :func:`reads`."""

    @wraps(work)
    async def endpoint(request: Request) -> Response:
        try:
            body = await sent_object(request)
        except BadRequestError as error:
            return problem(400, sentence(error))
        return await _answer(request, lambda: work(request, body), threads)

    return endpoint


async def sent_object(request: Request) -> dict[str, Any]:
    """The JSON object that a request carries; an empty body is an empty one."""
    try:
        body = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError):
        raise BadRequestError("What was sent is not JSON.") from None
    if not isinstance(body, dict):
        raise BadRequestError("What was sent is not a JSON object.")
    return body


async def _answer(request: Request, work: Callable[[], Any], threads: CapacityLimiter | None) -> Response:
    try:
        found = await to_thread.run_sync(work, limiter=threads)
    except NotFoundError as error:
        return problem(404, sentence(error))
    except PpolmError as error:
        return problem(400, sentence(error))
    except Exception:  # a damaged folder, a full disk: this answer is lost, the page is not
        log.exception("%s %s failed", request.method, request.url.path)
        return problem(500, "Something went wrong here; the terminal that runs `ppolm studio` says what.")
    return found if isinstance(found, Response) else json_answer(found)


def sentence(error: BaseException) -> str:
    """An error as one line of text."""
    return cut(printable(str(error)), LONGEST_SENTENCE)


def json_answer(value: Any) -> Response:
    """JSON that any browser reads: numbers that are not finite are null, and half characters are escaped."""
    return Response(json.dumps(plain(value), separators=(",", ":")), media_type="application/json")


def plain(value: Any) -> Any:
    """Without what JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    return str(value)


def part(request: Request, name: str) -> int:
    """A whole number in the path of an address."""
    given = str(request.path_params[name])
    if not given.isdecimal() or not given.isascii() or len(given) > 12:
        raise NotFoundError(f"There is no {name} {brief(given)}: expected a whole number.")
    return int(given)


def whole(request: Request, name: str, default: int | None, lowest: int = 0, highest: int = 10**9) -> int | None:
    """A whole number of the query."""
    given = request.query_params.get(name)
    if given is None or given == "":
        return default
    if not given.lstrip("-").isdecimal() or len(given) > 10 or not lowest <= int(given) <= highest:
        raise BadRequestError(f"{name} is {brief(given)}, expected a whole number from {lowest} to {highest}.")
    return int(given)


def real(request: Request, name: str, default: float, lowest: float, highest: float) -> float:
    """A number of the query."""
    given = request.query_params.get(name)
    if given is None or given == "":
        return default
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if not lowest <= number <= highest:
        raise BadRequestError(f"{name} is {brief(given)}, expected a number from {lowest:g} to {highest:g}.")
    return number


def choice(request: Request, name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of several words of the query."""
    given = request.query_params.get(name) or default
    if given not in allowed:
        raise BadRequestError(f"{name} is {brief(given)}, expected one of {', '.join(allowed)}.")
    return given
