"""What every request passes first: address, key, origin, size. Whatever does not belong here is turned away."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

import anyio
from starlette.responses import HTMLResponse, JSONResponse, Response

from ppolm.studio.visitors import Keys, Visitor, same

log = logging.getLogger(__name__)
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 1 << 20
LONGEST_ADDRESS = 8192
BODY_SECONDS = 20.0
"""How long a client may take to send what it wants to say."""
READS = frozenset({"GET", "HEAD"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""No script but our own files. Plotly sets styles from its script, which is the one concession."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
FOR_ANNOTATORS = ("/api/judge/", "/static/")
"""What is open to annotators beside the page /judge: no runs, no settings, nobody else's votes."""
WELCOME = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={to}">
<title>ppolm studio</title><p><a href="{to}">Continue to ppolm studio</a></p></html>"""


class BodyTooLargeError(Exception):
    """Raised while a body is read that is longer than any request of ours."""


@dataclass(frozen=True)
class Gate:
    """ASGI middleware. It knows the keys and the names that this server is reached by."""

    app: App
    keys: Keys
    port: int
    names: frozenset[str] = field(default_factory=lambda: frozenset({"127.0.0.1", "localhost", "[::1]"}))
    """Host names of this server. A foreign one is somebody's own domain that points here (DNS rebinding)."""
    any_address: bool = False
    """Whether numeric addresses of this machine are its names, too: it listens on all of them."""

    @property
    def cookie(self) -> str:
        """Its name holds the port, since browsers keep the cookies of all ports of a machine together."""
        return f"ppolm_studio_{self.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        send = guarded(send, scope["path"])
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        answer = self._turn_away(scope, headers)
        if answer is not None:
            await answer(scope, receive, send)
            return
        visitor = self._visitor(headers)
        assert visitor is not None
        scope["visitor"], scope["csrf"] = visitor, self.keys.csrf_token(visitor)
        try:
            await self.app(scope, bounded(receive), send)
        except BodyTooLargeError as error:
            await problem(413, str(error))(scope, receive, send)

    def _turn_away(self, scope: Scope, headers: Mapping[str, str]) -> Response | None:
        """The answer to a request that goes no further."""
        if len(scope["path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            return problem(414, "The address is too long.")
        if not self._is_our_name(headers.get("host", "")):
            return problem(421, "This server is not reached by that name. Open the link that `ppolm studio` printed.")
        if scope["path"] == "/open" and scope["method"] in READS:
            return self._open(scope)
        visitor = self._visitor(headers)
        if visitor is None:
            return problem(401, "The key is missing or wrong. Open the link that `ppolm studio` printed.")
        if not visitor.is_owner and not _is_for_annotators(scope["path"]):
            return problem(403, "This part of the page is not open to annotators.")
        if visitor.is_owner and not _is_local(scope.get("client")):
            return problem(403, "The owner's pages are open only on the machine that runs ppolm studio.")
        if scope["method"] not in READS:
            return self._refuse_foreign(headers, visitor)
        return None

    def _open(self, scope: Scope) -> Response:
        """Turn the key of a link into a cookie, and continue without it in the address.

        By a page that goes on by itself: after a redirect from somebody's mail page a strict cookie would not be sent.
        """
        key = parse_qs(scope["query_string"].decode("latin-1")).get("key", [""])[0]
        visitor = self.keys.visitor(key)
        if visitor is None:
            return problem(401, "The key of this link is wrong, or the server was started again. Ask for a new link.")
        answer = HTMLResponse(WELCOME.format(to="/" if visitor.is_owner else "/judge"))
        answer.set_cookie(self.cookie, visitor.key, httponly=True, samesite="strict", path="/")
        return answer

    def _visitor(self, headers: Mapping[str, str]) -> Visitor | None:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return None
        return self.keys.visitor(cookie.value) if cookie else None

    def _refuse_foreign(self, headers: Mapping[str, str], visitor: Visitor) -> Response | None:
        """Only pages of ours may write: by their origin, and by a token that only they know."""
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{headers.get('host', '')}":
            return problem(403, "This request comes from another site.")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return problem(403, "This request comes from another site.")
        if not same(headers.get("x-csrf-token", ""), self.keys.csrf_token(visitor)):
            return problem(403, "This page is out of date. Load it again.")
        return None

    def _is_our_name(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        if not port.isdigit():  # no port: the standard one, or an IPv6 address without any
            name, port = host, "80"
        name = name.lower()
        if port != str(self.port):
            return False
        return name in self.names or (self.any_address and _is_address(name))


def host_names(host: str) -> frozenset[str]:
    """The names by which a server that listens on ``host`` may be asked for."""
    own = {"127.0.0.1", "localhost", "[::1]", host.lower(), f"[{host.lower()}]"}
    if host not in ("127.0.0.1", "localhost", "::1"):
        own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(own)


def problem(status: int, sentence: str) -> Response:
    """An error as a sentence."""
    return JSONResponse({"error": sentence}, status)


def guarded(send: Send, path: str) -> Send:
    """Add the headers that keep a page to itself."""
    extra = dict(HEADERS) | ({} if path.startswith("/static/") else {"cache-control": "no-store"})

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in extra.items() if name.encode() not in given]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return with_headers


def bounded(receive: Receive) -> Receive:
    """Stop reading a body that is too large, or that never ends."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message: Message = {"type": "http.disconnect"}
        with anyio.move_on_after(BODY_SECONDS if size >= 0 else None):
            message = await receive()
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                raise BodyTooLargeError(f"What was sent is larger than {LARGEST_BODY >> 10} KiB.")
            if not message.get("more_body"):
                size = -1  # from now on only the end of the connection is waited for, however long it takes
        return message

    return limited


def _is_for_annotators(path: str) -> bool:
    return path == "/judge" or path.startswith(FOR_ANNOTATORS)


def _is_local(client: Any) -> bool:
    """Whether a request comes from this machine: what the owner sees does not cross a network unencrypted."""
    try:
        return client is not None and ipaddress.ip_address(client[0].partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
