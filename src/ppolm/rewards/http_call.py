"""One POST with an end: a deadline for all of it, a limit on the answer, and no redirects."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

LARGEST_BODY = 64 * 2**20
"""Bytes of an answer. A million scores per token take a tenth of that."""
CHUNK = 1 << 16


class TooLargeError(Exception):
    """An answer beyond LARGEST_BODY."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: following it would send prompts to a host that nobody named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Nowhere."""


class _Watched(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections and remembers them, so that another thread can end what waits on them."""

    def __init__(self) -> None:
        urllib.request.HTTPSHandler.__init__(self)
        self.connections: list[http.client.HTTPConnection] = []

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Over plain HTTP."""
        return self.do_open(functools.partial(self._connect, http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Over TLS."""
        make = functools.partial(self._connect, http.client.HTTPSConnection, context=ssl.create_default_context())
        return self.do_open(make, request)

    def _connect(self, kind: Any, host: str, **options: Any) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection = kind(host, **options)
        self.connections.append(connection)
        return connection

    def end(self) -> None:
        """Close what is open, so that a thread reading from it gets an error at once."""
        for connection in self.connections:
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)


def post(url: str, data: bytes, headers: Mapping[str, str], seconds: float) -> bytes:
    """The body of the answer, all of it within ``seconds``; raises what urllib raises, TimeoutError or TooLargeError.

    The time-out of a socket restarts with every byte, and looking up a name has none. So the call is made in a
    thread of its own, and the caller stops waiting for it when the time is over.
    """
    handler, found = _Watched(), _Outcome()
    address, login = without_login(url)
    request = urllib.request.Request(address, data=data, headers={**login, **headers})
    opener = urllib.request.build_opener(_NoRedirect, handler)
    until = time.monotonic() + seconds

    def call() -> None:
        try:
            with opener.open(request, timeout=max(0.001, until - time.monotonic())) as answer:
                found.body = _read(answer, until)
        except BaseException as error:  # handed to the caller
            found.error = error
        finally:
            found.done.set()

    threading.Thread(target=call, daemon=True, name="HTTP reward").start()
    try:
        in_time = found.done.wait(min(seconds, threading.TIMEOUT_MAX))
    finally:
        if not found.done.is_set():
            handler.end()
    if not in_time:
        raise TimeoutError("timed out")
    if found.error is not None:
        raise found.error
    return found.body


class _Outcome:
    """What a call ended with."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.body = b""
        self.error: BaseException | None = None


def _read(answer: Any, until: float) -> bytes:
    parts, size = [], 0
    while part := answer.read1(CHUNK):  # what has arrived, not what was promised
        parts.append(part)
        size += len(part)
        if size > LARGEST_BODY:
            raise TooLargeError(f"{LARGEST_BODY // 2**20} MiB")
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    missing = getattr(answer, "length", None)
    if missing:  # read1 does not mind if less came than was announced
        raise http.client.IncompleteRead(b"".join(parts), missing)
    return b"".join(parts)


def without_login(url: str) -> tuple[str, dict[str, str]]:
    """The address without user:password@, and the header that says the same."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url, {}
    said = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, {"Authorization": f"Basic {base64.b64encode(said.encode()).decode()}"}
