"""What changes while somebody looks: server-sent events that say which run has something new.

An event carries no data, only that there is some: a page that was slow, or away, asks for all it missed at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ppolm.studio.answers import NotFoundError, sentence
from ppolm.studio.gate import Receive, Scope, Send, problem
from ppolm.studio.studio import Studio

LOOK_SECONDS = 0.5
PING_SECONDS = 15.0
"""A line now and then, so that a connection that is gone is noticed."""
MOST_STREAMS = 256
"""Pages that listen at once. Further ones are told so, and look again by themselves every few seconds."""


class Streams:
    """Open event streams of one studio, and the marks they share: many pages of one run look at its files once."""

    def __init__(self, studio: Studio) -> None:
        self.studio, self.open = studio, 0
        self._marks: dict[str, tuple[float, Any]] = {}

    def mark(self, run_id: str) -> Any:
        """Changes when a run does; of "" when any run does."""
        known = self._marks.get(run_id)
        if known is not None and time.monotonic() - known[0] < LOOK_SECONDS / 2:
            return known[1]
        workspace = self.studio.workspace
        if run_id:
            path = workspace.run(run_id)
            found: Any = (workspace.mark(path), self.studio.waiting.of(path.name))
        else:
            found = ({name: workspace.mark(path) for name, path in workspace.runs().items()}, self.studio.waiting.all())
        self._marks[run_id] = (time.monotonic(), found)
        return found

    async def listen(self, run_id: str) -> AsyncIterator[str]:
        """Events, until the page goes away."""
        seen, quiet = await run_in_threadpool(self.mark, run_id), 0.0
        yield "retry: 3000\n: listening\n\n"
        while not self.studio.closing.is_set():
            await anyio.sleep(LOOK_SECONDS)
            quiet += LOOK_SECONDS
            try:
                now = await run_in_threadpool(self.mark, run_id)
            except NotFoundError:  # the run was moved or removed
                yield event({"run": run_id, "gone": True})
                return
            if now != seen:
                seen, quiet = now, 0.0
                yield event({"run": run_id})
            elif quiet >= PING_SECONDS:
                quiet = 0.0
                yield ": still here\n\n"


class Stream(StreamingResponse):
    """The events of one page; it counts as open from its first byte until the page is gone, however it goes."""

    def __init__(self, streams: Streams, run_id: str) -> None:
        super().__init__(streams.listen(run_id), media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self.streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them, unless too many pages are open already."""
        if self.streams.open >= MOST_STREAMS:
            refusal = problem(503, f"More than {MOST_STREAMS} pages are open. This one looks for news by itself.")
            await refusal(scope, receive, send)
            return
        self.streams.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.streams.open -= 1


def event(data: dict[str, Any]) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(data)}\n\n"


def routes(studio: Studio) -> list[Route]:
    """The one stream."""
    streams = Streams(studio)

    async def events(request: Request) -> Response:
        run_id = request.query_params.get("run", "")
        try:
            await run_in_threadpool(streams.mark, run_id)
        except NotFoundError as error:
            return problem(404, sentence(error))
        return Stream(streams, run_id)

    return [Route("/api/events", events)]
