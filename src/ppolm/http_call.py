"""A bounded HTTP request: a deadline for the whole call, a size limit on the response, and no redirects."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import math
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

LARGEST_BODY = 64 * 2**20
"""Maximum response size in bytes. A million token scores take a tenth of it."""
CHUNK = 1 << 16


class TooLargeError(Exception):
    """A response larger than LARGEST_BODY."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects, which would send prompts to a host that the user did not name."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect."""


class _Watched(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections and keeps track of them, so that another thread can interrupt a blocked read."""

    def __init__(self) -> None:
        urllib.request.HTTPSHandler.__init__(self)
        self.connections: list[http.client.HTTPConnection] = []

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Open over plain HTTP."""
        return self.do_open(functools.partial(self._connect, http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Open over TLS."""
        make = functools.partial(self._connect, http.client.HTTPSConnection, context=ssl.create_default_context())
        return self.do_open(make, request)

    def _connect(self, kind: Any, host: str, **options: Any) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection = kind(host, **options)
        self.connections.append(connection)
        return connection

    def end(self) -> None:
        """Shut down open connections, so that a thread reading from one gets an error at once."""
        for connection in self.connections:
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)


def call(
    url: str,
    data: bytes | None,
    headers: Mapping[str, str],
    seconds: float,
    look: Callable[[], None] | None = None,
    every: float = math.inf,
) -> bytes:
    """The complete response body within ``seconds``; raises TimeoutError, TooLargeError or what urllib raises.

    With ``data`` it is a POST request, without a GET. While it is waited for, ``look`` is called every so many seconds;
    what it raises ends the call.

    A socket's time-out restarts with every byte, and name resolution has none. So the call runs in its own thread,
    and the caller stops waiting for it at the deadline.
    """
    handler, found = _Watched(), _Outcome()
    address, login = without_login(url)
    request = urllib.request.Request(address, data=data, headers={**login, **headers})
    opener = urllib.request.build_opener(_NoRedirect, handler)
    until = time.monotonic() + seconds

    def work() -> None:
        try:
            with opener.open(request, timeout=max(0.001, until - time.monotonic())) as answer:
                found.body = _read(answer, until)
        except BaseException as error:  # re-raised in the caller
            found.error = error
        finally:
            found.done.set()

    threading.Thread(target=work, daemon=True, name="HTTP call").start()
    try:
        return found.get(until, look, every)
    finally:
        if not found.done.is_set():
            handler.end()


class _Outcome:
    """The result of a call: a body or an error."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.body = b""
        self.error: BaseException | None = None

    def get(self, until: float, look: Callable[[], None] | None, every: float) -> bytes:
        """The body once it is there; raises the error, or TimeoutError."""
        while not self.done.is_set():
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            if not self.done.wait(min(left, every, threading.TIMEOUT_MAX)) and look is not None:
                look()
        if self.error is not None:
            raise self.error
        return self.body


def _read(answer: Any, until: float) -> bytes:
    parts, size = [], 0
    while part := answer.read1(CHUNK):  # whatever has arrived so far
        parts.append(part)
        size += len(part)
        if size > LARGEST_BODY:
            raise TooLargeError(f"{LARGEST_BODY // 2**20} MiB")
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    missing = getattr(answer, "length", None)
    if missing:  # read1 does not notice if less arrives than was announced
        raise http.client.IncompleteRead(b"".join(parts), missing)
    return b"".join(parts)


def without_login(url: str) -> tuple[str, dict[str, str]]:
    """The URL without user:password@, and the equivalent Authorization header."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url, {}
    said = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, {"Authorization": f"Basic {base64.b64encode(said.encode()).decode()}"}
