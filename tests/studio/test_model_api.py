"""Asking models over HTTP: ids and never paths, errors as sentences, and nobody's work for nobody."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ppolm.config import PPOConfig
from ppolm.feedback.store import FeedbackStore
from ppolm.studio.visitors import Keys
from ppolm.studio.worker_process import ModelChoice
from tests.studio.serving import Served, serving
from tests.studio.worker_cases import scripted_command

ANN = "ann-has-a-long-key-of-her-own"
CHAT = [{"role": "user", "content": "Hello <b>"}]


def make_run(folder: Path, **settings: Any) -> Path:
    """A run folder without weights, for everything that does not load it."""
    (folder / "checkpoints" / "step-000010").mkdir(parents=True)
    (folder / "checkpoints" / "step-000020").mkdir()
    (folder / "checkpoints" / "other").mkdir()
    (folder / "best").mkdir()
    (folder / "best" / "best.json").write_text(json.dumps({"step": 10, "chat": True}))
    PPOConfig(model_name="embedded", temperature=0.7, **settings).to_yaml(folder / "config.yaml")
    (folder / "metrics.jsonl").write_text("")
    rows = [{"prompt": "first"}, {"messages": CHAT}]
    (folder / "held_out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose models are scripted processes."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "mine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelChoice, "command", lambda *_: scripted_command())
        patch.setattr("ppolm.studio.model_workers.GRACE", 0.3)  # the script hears no cancellation
        with serving(folder, store=folder / "feedback.db", keys=Keys(annotators={ANN: "ann"})) as running:
            yield running


def embedded_id(served: Served) -> str:
    """The reward model that the run was trained on."""
    (found,) = served.visitor().get("/api/rewards").json["rewards"]
    assert (found["name"], found["runs"]) == ("embedded", ["mine"])
    return str(found["id"])


def test_what_can_be_tried_of_a_run_is_told_without_loading_it(served: Served) -> None:
    found = served.visitor().get("/api/try/mine").json
    assert [(one["which"], one["step"]) for one in found["choices"]] == [
        *[("best", 10), ("step-000020", 20), ("step-000010", 10)]
    ]
    assert found["sampling"] == {"temperature": 0.7, "top_k": 50, "top_p": 0.95, "max_new_tokens": 10}
    assert found["chat"] is True
    assert (found["prompts"], found["held_out"]) == (["first", CHAT], 2)
    assert served.visitor().get("/api/models").json == {"models": []}


def test_only_what_a_model_needs_is_handed_on(served: Served) -> None:
    body = {"prompt": "x", "seed": 3, "which": "step-000020", "folder": "/etc", "do": "die"}
    found = served.visitor().post("/api/try/mine/answer", body)
    assert found.status == 200
    assert found.json["echo"] == {"prompt": "x", "seed": 3}
    (model,) = served.visitor().get("/api/models").json["models"]
    assert (model["which"], model["working"]) == ("step-000020", False)
    assert "folder" not in model
    assert served.visitor().post("/api/models/unload").json == {"unloaded": 1}
    reward = served.visitor().post(
        f"/api/reward/{embedded_id(served)}/score", {"prompt": "x", "answers": ["y"], "a": 1}
    )
    assert reward.json["echo"] == {"prompt": "x", "answers": ["y"]}


@pytest.mark.parametrize("which", ["../best", "step-1/../..", "", 7, None, "step-", "/etc", "best\x00", ["best"]])
def test_a_checkpoint_is_named_and_not_addressed(served: Served, which: Any) -> None:
    answer = served.visitor().post("/api/try/mine/answer", {"prompt": "x", "which": which})
    assert answer.status == 400
    assert answer.json["error"].startswith("which is ")


NAMES = [
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


@pytest.mark.parametrize("name", NAMES)
def test_no_path_of_a_request_reaches_the_file_system(served: Served, name: str) -> None:
    client = served.visitor()
    quoted = name if "%" in name else quote(name, safe="")
    for address in (f"/api/try/{quoted}", f"/api/reward/{quoted}"):
        assert client.get(address).status in (400, 404), address
    for address in (f"/api/try/{quoted}/answer", f"/api/try/{quoted}/judge", f"/api/reward/{quoted}/score"):
        assert client.post(address, {"prompt": "x", "responses": {"policy": "y"}, "answers": ["y"]}).status in (
            400,
            404,
        ), address


def test_models_are_not_for_annotators_nor_for_other_sites(served: Served) -> None:
    reward = embedded_id(served)
    posts = ["/api/try/mine/answer", "/api/try/mine/judge", f"/api/reward/{reward}/score", "/api/models/unload"]
    for path in ("/rewards", "/try", "/api/rewards", "/api/try/mine", f"/api/reward/{reward}", "/api/models"):
        assert served.visitor(ANN).get(path).status == 403, path
    for path in posts:
        assert served.visitor(ANN).post(path, {"prompt": "x"}).status == 403, path
        assert served.visitor().post(path, {"prompt": "x"}, Origin="https://evil.example").status == 403, path
        assert served.visitor().get(path).status == 404, path


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_bodies_that_are_not_objects_are_a_sentence(served: Served, body: bytes) -> None:
    client = served.visitor()
    for path in ("/api/try/mine/answer", "/api/try/mine/judge"):
        answer = client.send("POST", path, body, {"X-CSRF-Token": client.csrf})
        assert answer.status == 400
        assert "not" in answer.json["error"]


def test_answers_are_sent_to_the_judges_with_where_they_come_from(served: Served) -> None:
    client = served.visitor()
    texts = {"policy": "policy says", "reference": "reference says"}
    body = {"prompt": CHAT, "responses": texts, "which": "step-000010", "step": 10}
    assert client.post("/api/try/mine/judge", body).json == {"queued": 2}
    assert client.post("/api/try/mine/judge", {**body, "responses": {"policy": "policy says"}}).json == {"queued": 1}
    store = FeedbackStore(served.studio.store)
    waiting = store.waiting()
    store.close()
    assert sorted(item.response for item in waiting) == ["policy says", "reference says"], "asked twice is asked once"
    sources = {item.response: (item.source.run, item.source.step, item.source.policy) for item in waiting}
    assert sources == {
        "policy says": ("mine", 10, "mine/checkpoints/step-000010"),
        "reference says": ("mine", 0, "reference"),
    }
    assert all(item.content == CHAT for item in waiting)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": ""},
        {"prompt": 7},
        {"responses": {}},
        {"responses": "text"},
        {"responses": ["text"]},
        {"responses": {"policy": "a", "other": "b"}},
        {"responses": {"policy": 1}},
        {"responses": {"policy": "x" * 300_000}},
        {"which": "../best"},
        {"step": "1"},
        {"step": -1},
        {"step": True},
    ],
)
def test_what_cannot_be_judged_is_refused_in_a_sentence(served: Served, change: dict[str, Any]) -> None:
    answer = served.visitor().post(
        "/api/try/mine/judge", {"prompt": "x", "responses": {"policy": "y"}, "step": 1, **change}
    )
    assert answer.status == 400
    assert answer.json["error"]


def test_a_browser_that_goes_away_stops_the_model(served: Served) -> None:
    client = served.visitor()
    connection = http.client.HTTPConnection("127.0.0.1", served.studio.port, timeout=30)
    headers = {"Cookie": str(client.cookie), "X-CSRF-Token": client.csrf, "Content-Type": "application/json"}
    connection.request("POST", "/api/try/mine/answer", json.dumps({"prompt": "sleep"}), headers)
    wait_until(lambda: [model["working"] for model in models(served)] == [True])
    connection.close()
    wait_until(lambda: not any(model["working"] for model in models(served)))


def models(served: Served) -> list[dict[str, Any]]:
    """What is loaded."""
    return list(served.visitor().get("/api/models").json["models"])


def wait_until(true: Any) -> None:
    """Wait until something is true."""
    until = time.monotonic() + 15
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_too_many_requests_are_refused_as_such(served: Served) -> None:
    client = served.visitor()
    headers = {"Cookie": str(client.cookie), "X-CSRF-Token": client.csrf, "Content-Type": "application/json"}
    open_ = []
    for _ in range(served.studio.models.waiting):
        connection = http.client.HTTPConnection("127.0.0.1", served.studio.port, timeout=30)
        connection.request("POST", "/api/try/mine/answer", json.dumps({"prompt": "sleep"}), headers)
        open_.append(connection)
    try:
        wait_until(lambda: served.studio.models.pending == served.studio.models.waiting)
        answer = client.post("/api/try/mine/answer", {"prompt": "x", "which": "last"})
        assert (answer.status, "Try again" in answer.json["error"]) == (503, True)
        assert client.get("/api/runs").status == 200, "the rest of the page is not held up"
    finally:
        for connection in open_:
            connection.close()
    wait_until(lambda: not any(model["working"] for model in models(served)))


def test_a_request_in_the_making_ends_quietly_with_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ModelChoice, "command", lambda *_: scripted_command())
    make_run(tmp_path / "mine")
    with serving(tmp_path, store=tmp_path / "feedback.db") as running:
        client, answers = running.visitor(), []
        body = {"prompt": "sleep"}
        asking = threading.Thread(target=lambda: answers.append(client.post("/api/try/mine/answer", body)))
        asking.start()
        wait_until(lambda: [model["working"] for model in models(running)] == [True])
        running.studio.closing.set()
        asking.join(10)
    assert [(answer.status, answer.json["error"]) for answer in answers] == [(400, "The studio is closing.")]
    assert "Traceback" not in caplog.text


def test_a_damaged_run_is_shown_with_what_can_be_read(tmp_path: Path) -> None:
    run = make_run(tmp_path / "broken")
    (run / "config.yaml").write_text("temperature: hot\n")
    (run / "held_out.jsonl").write_text("{")
    (run / "best" / "best.json").write_text("[]")
    with serving(tmp_path, store=tmp_path / "feedback.db") as running:
        found = running.visitor().get("/api/try/broken")
        assert found.status == 200
        assert found.json["problem"].startswith("Its settings cannot be used: ")
        assert (found.json["prompts"], found.json["chat"]) == ([], False)
        assert running.visitor().get("/api/rewards").status == 200


def test_the_server_starts_without_torch() -> None:
    """What a page needs of it is computed where it is asked for; models are loaded elsewhere."""
    code = "import sys, ppolm.studio.app, ppolm.studio.serve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
