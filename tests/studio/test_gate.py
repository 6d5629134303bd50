"""Who may come in: the usual attacks on a local page, each turned away."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.routing import Route

from ppolm.errors import ConfigError
from ppolm.studio.app import FEATURES
from ppolm.studio.serve import listen
from ppolm.studio.studio import Studio
from ppolm.studio.visitors import Keys, read_annotators
from tests.run_folders import make_run
from tests.studio.serving import Client, Served, serving

ANN = "ann-has-a-long-key-of-her-own"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "mine")
    with serving(folder, store=folder / "feedback.db", keys=Keys(annotators={ANN: "ann"})) as running:
        yield running


ADDRESSES = ["/", "/api/runs", "/api/run/mine", "/api/run/mine/metrics", "/api/events", "/static/js/dom.js", "/judge"]


@pytest.mark.parametrize("path", ADDRESSES)
def test_without_the_key_nothing_is_shown(served: Served, path: str) -> None:
    answer = served.stranger().get(path)
    assert answer.status == 401
    assert b"mine" not in answer.body


def test_a_wrong_key_opens_nothing(served: Served) -> None:
    client = served.stranger()
    assert client.open("wrong").status == 401
    assert client.cookie is None


def test_the_key_of_the_link_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(served: Served) -> None:
    answer = served.stranger().open(served.studio.keys.owner)
    assert answer.status == 200
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert served.visitor().get("/api/runs").json["runs"][0]["id"] == "mine"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", ""]
)
def test_a_foreign_host_name_is_turned_away_even_with_the_key(served: Served, host: str) -> None:
    """DNS rebinding: somebody's own domain that points to this machine."""
    client = served.visitor()
    client.host = host.format(port=served.studio.port) or "?"
    assert client.get("/api/runs").status == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "0" * 64},
    ],
)
def test_another_site_cannot_write(served: Served, headers: dict[str, str]) -> None:
    answer = served.visitor().post("/api/judge/next", {}, **headers)
    assert answer.status == 403


def test_annotators_see_judging_and_nothing_else(served: Served) -> None:
    client = served.visitor(ANN)
    for path in (
        "/",
        "/api/runs",
        "/api/run/mine",
        "/api/run/mine/metrics",
        "/api/events",
        "/compare",
        "/api/compare?run=mine",
    ):
        assert client.get(path).status == 403, path
    assert client.get("/static/js/dom.js").status == 200


HOSTILE = [
    "..",
    "../mine",
    "..%2f..%2fetc",
    "%2e%2e",
    "mine/../mine",
    "/etc/passwd",
    "mine%00",
    "~",
    "a" * 3000,
    "\u202e",
]
VALID = {
    "run": "mine",
    "number": "1",
    "step": "1",
    "sequence": "0",
    "token": "0",
    "prompt": "0",
    "reward": "none",
    "study": "none",
}
"""Values that stand in the other places of an address while one of them is hostile."""


def addresses_with_names(studio: Studio) -> Iterator[tuple[str, str, str]]:
    """Method, address and name of every part of every address of the API that a browser fills in."""
    for route in (route for feature in FEATURES for route in feature(studio)):
        names = re.findall(r"{(\w+)(?::\w+)?}", getattr(route, "path", "")) if isinstance(route, Route) else []
        if not route.path.startswith("/api/"):
            continue  # pages are frames without content
        for name in names:
            filled = re.sub(r"{(\w+)(?::\w+)?}", lambda m, n=name: "{}" if m[1] == n else VALID[m[1]], route.path)
            yield ("POST" if "POST" in (route.methods or ()) else "GET"), filled, name


@pytest.mark.parametrize("name", HOSTILE)
def test_no_part_of_an_address_reaches_the_file_system(served: Served, name: str) -> None:
    client = served.visitor()
    quoted = name if "%" in name else quote(name, safe="")
    found = list(addresses_with_names(served.studio))
    assert len(found) > 15
    for method, address, _ in found:
        body = b"{}" if method == "POST" else None
        answer = client.send(method, address.format(quoted), body, {"X-CSRF-Token": client.csrf})
        assert answer.status in (400, 404), (method, address)
        assert b"root:" not in answer.body
    for address in (f"/api/compare?run={quoted}", f"/api/events?run={quoted}"):
        assert client.get(address).status in (400, 404), address
    for address in (f"/static/{quoted}", f"/static/js/{quoted}", "/static/../app.py", "/static/%2e%2e/app.py"):
        assert client.get(address).status in (404, 405), address


def test_a_body_that_is_too_large_is_not_read(served: Served) -> None:
    client = served.visitor()
    answer = client.post("/api/judge/next", {"padding": "x" * (2 << 20)})
    assert answer.status == 413


def test_an_address_that_is_too_long_is_refused(served: Served) -> None:
    assert served.visitor().get("/api/runs?" + "x" * 9000).status == 414


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_bodies_that_are_not_objects_are_a_sentence(served: Served, body: bytes) -> None:
    client = served.visitor()
    answer = client.send("POST", "/api/judge/next", body, {"X-CSRF-Token": client.csrf})
    assert answer.status in (200, 400, 404)
    assert isinstance(json.loads(answer.body), dict)


def test_every_answer_has_the_headers_that_keep_a_page_to_itself(served: Served) -> None:
    for answer in (served.visitor().get("/"), served.stranger().get("/"), served.visitor().get("/api/nothing")):
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "default-src 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_slow_clients_do_not_hold_up_others(served: Served) -> None:
    slow = []
    for _ in range(100):
        connection = socket.create_connection(("127.0.0.1", served.studio.port))
        connection.sendall(b"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n")
        slow.append(connection)
    try:
        assert served.visitor().get("/api/runs").status == 200
    finally:
        for connection in slow:
            connection.close()


def test_garbage_instead_of_http_harms_nothing(served: Served) -> None:
    for garbage in (b"\x00" * 1000, b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\xff\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", served.studio.port)) as connection:
            connection.sendall(garbage)
    assert served.visitor().get("/api/runs").status == 200


def test_hosts_of_other_machines_need_to_be_named() -> None:
    from ppolm.studio.gate import host_names

    assert "evil.example" not in host_names("0.0.0.0")
    assert host_names("127.0.0.1") == {"127.0.0.1", "localhost", "[::1]", "[127.0.0.1]"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "names no annotators"),
        ("ann", "has no key"),
        ("ann short", "could be guessed"),
        ("ann 0123456789abcdef0\nben 0123456789abcdef0", "the same key"),
        ("ann 0123456789abcdef0\nann 0123456789abcdef1", "a second time"),
        ("a\x1bnn 0123456789abcdef0", "printable"),
    ],
)
def test_a_bad_file_of_annotators_is_a_sentence(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "people").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_annotators(tmp_path / "people")


def test_annotators_are_read_with_spaces_in_names_and_comments(tmp_path: Path) -> None:
    (tmp_path / "people").write_text("# us\n\nAnn Lee 0123456789abcdef0\nben 0123456789abcdef1\n")
    assert read_annotators(tmp_path / "people") == {"0123456789abcdef0": "Ann Lee", "0123456789abcdef1": "ben"}


def test_a_client_of_another_machine_never_sees_the_owners_pages(served: Served) -> None:
    from ppolm.studio.gate import _is_local

    assert _is_local(("127.0.0.1", 1))
    assert _is_local(("::1", 1))
    assert not _is_local(("192.0.2.7", 1))
    assert not _is_local(None)
    assert isinstance(served.stranger(), Client)


def test_answers_are_sent_at_once_over_a_connection_that_stays_open() -> None:
    """Without TCP_NODELAY the end of an answer waits for the browser's acknowledgement: 40 ms on every request."""
    options: list[int] = []

    async def connect() -> None:
        async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            options.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(accepted, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            await reader.read()
            writer.close()

    listener = listen("127.0.0.1", 0)
    thread = threading.Thread(target=asyncio.run, args=(connect(),))  # a browser's loop may run in this one
    thread.start()
    thread.join()
    assert options[0] != 0
