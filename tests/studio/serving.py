"""A real studio server in a thread, a client for it, and a real browser."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn

from ppolm.studio.app import make_app
from ppolm.studio.serve import listen
from ppolm.studio.studio import Studio
from ppolm.studio.visitors import Keys
from ppolm.studio.workspace import Workspace

CHROMIUM = Path("/usr/bin/chromium")
BROWSER_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def wait_until(page: Any, holds: Callable[[], bool], seconds: float = 20) -> None:
    """Let a page work until something holds. (Playwright's own wait evaluates text, which our policy forbids.)"""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"it did not come true within {seconds} s"
        page.wait_for_timeout(100)


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its body as JSON."""
        return json.loads(self.body)


@dataclass
class Client:
    """A visitor without a browser: sends what it is told, and keeps its cookie."""

    port: int
    cookie: str | None = None
    csrf: str = ""
    host: str = field(default="")

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        """One request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        own = {"Host": self.host or f"127.0.0.1:{self.port}"}
        if self.cookie:
            own["Cookie"] = self.cookie
        try:
            connection.request(method, path, body, own | (headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def open(self, key: str) -> Answer:
        """Come with a key: keeps the cookie, and the token that pages write with."""
        answer = self.send("GET", f"/open?{urlencode({'key': key})}")
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
            page = self.send("GET", "/judge").body + self.send("GET", "/").body
            found = re.search(rb'name="csrf" content="([0-9a-f]+)"', page)
            self.csrf = found.group(1).decode() if found else ""
        return answer

    def get(self, path: str, **parameters: Any) -> Answer:
        """Ask for something."""
        return self.send("GET", f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """Write something, as a page of ours would."""
        own = {"Content-Type": "application/json", "X-CSRF-Token": self.csrf, **headers}
        return self.send("POST", path, json.dumps(body or {}).encode(), own)


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    studio: Studio

    @property
    def address(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.studio.port}"

    @property
    def link(self) -> str:
        """What opens it for its owner."""
        return f"{self.address}/open?key={self.studio.keys.owner}"

    def visitor(self, key: str | None = None) -> Client:
        """A client who has come with a key; the owner's unless another is given."""
        client = Client(self.studio.port)
        client.open(self.studio.keys.owner if key is None else key)
        return client

    def stranger(self) -> Client:
        """A client without a key."""
        return Client(self.studio.port)


@contextmanager
def serving(*folders: Path, store: str | Path = "feedback.db", keys: Keys | None = None) -> Iterator[Served]:
    """A studio over some folders, on a free port, for as long as the block runs."""
    listener = listen("127.0.0.1", 0)
    studio = Studio(Workspace(list(folders)), store=str(store), keys=keys or Keys())
    studio = replace(studio, port=listener.getsockname()[1])
    server = uvicorn.Server(uvicorn.Config(make_app(studio), log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    try:
        yield Served(studio)
    finally:
        studio.closing.set()
        server.should_exit = True
        thread.join(20)
