"""A small server that speaks as much of the Hub's protocol as a new repository and an upload need."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_AVerySecretToken"


class SmallHub(ThreadingHTTPServer):
    """What it was given: repositories with their visibility, and files by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.large: dict[str, bytes] = {}
        """Contents that came apart from the commit, by SHA-256."""
        self.refusal: int | None = None
        """A status that every request is answered with."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: SmallHub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, {"error": f"wrong token {self.headers.get('Authorization')}"})
        if self.server.refusal is not None:
            return self.answer(self.server.refusal, {"error": "no"})
        if self.path == "/api/repos/create":
            return self.create(json.loads(body))
        if "/preupload/" in self.path:
            return self.answer(200, {"files": [self.mode(file) for file in json.loads(body)["files"]]})
        if self.path.endswith("/info/lfs/objects/batch"):
            return self.answer(
                200, {"transfer": "basic", "objects": list(map(self.place, json.loads(body)["objects"]))}
            )
        if "/commit/" in self.path:
            for line in body.splitlines():
                self.commit(json.loads(line))
            return self.answer(200, {"commitUrl": f"{self.server.address}/me/x/commit/abc", "commitOid": "abc"})
        return self.answer(200, {})

    def do_PUT(self) -> None:
        self.server.large[self.path.rpartition("/")[2]] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, {})

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.server.repositories:
            return self.answer(409, {"error": "You already created this model repo"})
        self.server.repositories[name] = asked["visibility"]
        return self.answer(200, {"url": f"{self.server.address}/{name}", "name": name, "id": name})

    def mode(self, file: dict[str, Any]) -> dict[str, Any]:
        large = file["path"].endswith((".safetensors", ".gguf"))
        return {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}

    def place(self, wanted: dict[str, Any]) -> dict[str, Any]:
        return {**wanted, "actions": {"upload": {"href": f"{self.server.address}/large/{wanted['oid']}"}}}

    def commit(self, row: dict[str, Any]) -> None:
        value = row["value"]
        if row["key"] == "file":
            self.server.files[value["path"]] = base64.b64decode(value["content"])
        elif row["key"] == "lfsFile":
            self.server.files[value["path"]] = self.server.large[value["oid"]]

    def answer(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def small_hub() -> Iterator[SmallHub]:
    """The server, in a thread of its own."""
    with SmallHub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
