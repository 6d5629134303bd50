"""Runs in a real browser: live charts, comparison, hostile names, damaged folders."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.runs.run_status import RunStatus, read_status
from ppolm.studio.run_api import other_store
from ppolm.studio.studio import Studio
from ppolm.studio.workspace import Workspace
from tests.run_folders import make_run
from tests.studio.serving import serving, wait_until
from tests.warm import Program, start_warm

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "</title><svg onload='window.hacked = 1'>",
    "a\u202eb\u0007c\u200f",
    "{{ 7 * 7 }}${7 * 7}",
]
POINTS = "() => document.querySelector('.plot.js-plotly-plot')?.data?.at(-1)?.x?.length ?? 0"


def train_embedded(folder: Path, steps: int) -> Program:
    """A real PPO run of the embedded model in a process of its own."""
    flags = {
        "max-steps": steps,
        "batch-size": 4,
        "minibatch-size": 4,
        "eval-every": 0,
        "threads": 1,
        "run-name": "live",
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    return start_warm("ppolm", "train", "--model-name", "embedded", "--output-dir", folder, *words, cwd=folder)


def test_a_chart_grows_by_itself_while_a_real_run_trains(tmp_path: Path, visit: Callable[..., Any]) -> None:
    with train_embedded(tmp_path, 12) as process, serving(tmp_path) as served:
        page = visit(served)
        page.get_by_role("link", name="live").click(timeout=120_000)  # the list shows it as soon as it has begun
        wait_until(page, lambda: page.evaluate(POINTS) >= 2, 90)
        seen = page.evaluate(POINTS)
        wait_until(page, lambda: page.evaluate(POINTS) > seen, 90)
        page.get_by_text("finished").first.wait_for(timeout=120_000)
        assert page.evaluate(POINTS) == 12
        assert process.end(60) == 0


def test_killing_the_page_does_not_touch_the_run_it_shows(tmp_path: Path) -> None:
    with train_embedded(tmp_path, 4) as process:
        studio = subprocess.Popen(
            [sys.executable, "-m", "ppolm", "studio", str(tmp_path), "--port", "0", "--no-open"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert studio.stdout is not None
            while "Ctrl-C" not in studio.stdout.readline():
                assert studio.poll() is None
            os.kill(studio.pid, signal.SIGKILL)
            assert process.end(120) == 0
            status = read_status(tmp_path / "live")
            assert status is not None
            assert status.state == "finished"
        finally:
            studio.kill()
            studio.communicate()


def test_killing_a_run_under_an_open_page_leaves_the_page_alive_and_says_so(
    tmp_path: Path, visit: Callable[..., Any]
) -> None:
    with train_embedded(tmp_path, 500) as process, serving(tmp_path) as served:
        overview, page = visit(served), visit(served)
        page.get_by_role("link", name="live").click(timeout=120_000)
        wait_until(page, lambda: page.evaluate(POINTS) >= 2, 90)
        os.kill(process.pid, signal.SIGKILL)  # at whatever moment it is in
        process.end(60)
        page.get_by_text("stopped").first.wait_for(timeout=60_000)
        overview.locator(".state.stopped").wait_for(timeout=60_000)
        steps = len((tmp_path / "live" / "metrics.jsonl").read_text().splitlines())
        assert 2 <= page.evaluate(POINTS) <= steps
        assert "--resume" in page.locator("main").inner_text(), "it says how to go on"
        page.reload()
        wait_until(page, lambda: page.evaluate(POINTS) >= 2)


def test_two_runs_in_the_same_charts_with_what_differs(tmp_path: Path, visit: Callable[..., Any]) -> None:
    for name, rate in (("slow", 1e-5), ("quick", 1e-3)):
        run = make_run(tmp_path / name, steps=30, status=RunStatus("finished", 30, verdict="improved"))
        (run / "config.yaml").write_text(f"model_name: embedded\nlearning_rate: {rate}\nrun_name: {name}\n")
    with serving(tmp_path) as served:
        page = visit(served)
        for name in ("slow", "quick"):
            page.get_by_label(f"Choose {name} to compare").check()
        page.keyboard.press("c")
        page.wait_for_url(re.compile("/compare"))
        page.wait_for_selector(".js-plotly-plot")
        lines = page.evaluate("document.querySelector('.plot').data.map((one) => one.name)")
        assert lines == ["slow, training", "quick, training"]
        row = page.get_by_role("row", name="learning_rate")
        assert row.get_by_role("cell").all_inner_texts() == ["1e-05", "0.001"]
        assert page.get_by_role("row", name="run_name").count() == 0
        again = visit(served, page.url.removeprefix(served.address))
        again.get_by_role("row", name="learning_rate").wait_for()  # a copied address shows the same


def test_filter_sort_and_state_are_in_the_address(tmp_path: Path, visit: Callable[..., Any]) -> None:
    for i, name in enumerate(("alpha", "beta", "gamma")):
        make_run(tmp_path / name, steps=i + 1, status=RunStatus("finished", 3))

    def shows(page: Any, *names: str) -> None:
        wait_until(page, lambda: page.locator("td.name").all_inner_texts() == list(names))

    with serving(tmp_path) as served:
        page = visit(served)
        by_step = page.locator("thead button").filter(has_text=re.compile("^Step$"))
        by_step.click()
        shows(page, "alpha", "beta", "gamma")
        by_step.click()
        shows(page, "gamma", "beta", "alpha")
        page.keyboard.press("/")
        page.keyboard.type("mma")
        shows(page, "gamma")
        again = visit(served, page.url.removeprefix(served.address))
        shows(again, "gamma")
        assert again.get_by_label("Filter by name").input_value() == "mma"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_and_settings_are_text(tmp_path: Path, visit: Callable[..., Any], name: str) -> None:
    folder = re.sub("/", "", name)
    run = make_run(tmp_path / folder, steps=3, status=RunStatus("failed", 3, why=name, verdict=name, reasons=(name,)))
    (run / "config.yaml").write_text(json.dumps({"model_name": name, "reward": [name], name: 1}))
    with serving(tmp_path) as served:
        page = visit(served)
        page.locator("td.name a").click()
        page.wait_for_selector(".js-plotly-plot")
        assert page.get_by_role("row", name="model_name").count() == 1
        page.goto(f"{served.address}/compare?run={next(iter(served.studio.workspace.runs()))}")
        page.wait_for_selector(".js-plotly-plot")
        assert page.evaluate("window.hacked") is None
        assert "\u202e" not in page.locator("body").inner_text()
        assert "49" not in page.locator("h1").inner_text()


def test_a_line_of_a_megabyte_neither_breaks_nor_blocks_the_page(tmp_path: Path, visit: Callable[..., Any]) -> None:
    run = make_run(tmp_path / "long", status=RunStatus("stopped", 3, why="x" * 500_000, reasons=("y " * 200_000,)))
    (run / "config.yaml").write_text(json.dumps({"model_name": "z" * 200_000}))
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "train", "step": 4, "note": "w" * 1_000_000}) + "\n")
    with serving(tmp_path) as served:
        page = visit(served, "/run/long")
        page.wait_for_selector(".js-plotly-plot")


def test_damaged_and_vanishing_runs_never_take_the_page_down(tmp_path: Path) -> None:
    good = make_run(tmp_path / "good", status=RunStatus("finished", 3))
    for name, content in (("empty", b""), ("binary", bytes(range(256)) * 50), ("list", b"[1,2]\n" * 9)):
        run = make_run(tmp_path / name)
        for file in ("metrics.jsonl", "config.yaml", "status.json"):
            (run / file).write_bytes(content)
        (run / "best").mkdir()
        (run / "best" / "best.json").write_bytes(content)
    with serving(tmp_path) as served:
        client = served.visitor()
        assert {run["id"] for run in client.get("/api/runs").json["runs"]} == {"good", "empty", "binary", "list"}
        for name in ("good", "empty", "binary", "list"):
            assert client.get(f"/api/run/{name}").status == 200, name
            assert client.get(f"/api/run/{name}/metrics").status == 200, name
        assert client.get("/api/compare", run=["good", "binary", "list"]).status == 200
        good.rename(tmp_path.parent / f"{tmp_path.name}-moved")
        time.sleep(1.1)
        answer = client.get("/api/run/good")
        assert answer.status == 404
        assert "moved or removed" in answer.json["error"]


def test_a_thousand_open_streams_do_not_keep_others_out(tmp_path: Path) -> None:
    import socket

    make_run(tmp_path / "mine")
    with serving(tmp_path) as served:
        client = served.visitor()
        request = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{served.studio.port}\r\nCookie: {client.cookie}\r\n\r\n"
        streams = []
        try:
            for _ in range(1000):
                stream = socket.create_connection(("127.0.0.1", served.studio.port), timeout=20)
                stream.sendall(request.encode())
                streams.append(stream)
            answers = [stream.recv(15)[9:12] for stream in streams]
            assert answers.count(b"200") == 256
            assert answers.count(b"503") == 744
            assert client.get("/api/runs").status == 200
        finally:
            for stream in streams:
                stream.close()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with socket.create_connection(("127.0.0.1", served.studio.port), timeout=20) as stream:
                stream.sendall(request.encode())
                if stream.recv(15)[9:12] == b"200":
                    return
            time.sleep(0.5)
        pytest.fail("streams that were closed still count as open")


def test_the_list_of_a_folder_without_runs_says_what_to_do_next(tmp_path: Path, visit: Callable[..., Any]) -> None:
    with serving(tmp_path) as served:
        page = visit(served)
        page.get_by_role("heading", name="There are no runs here yet").wait_for()
        make_run(tmp_path / "first")
        page.get_by_role("link", name="first").wait_for()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"reward": ["human"], "feedback_store": "theirs.db"}, "theirs.db"),
        ({"reward": "model", "judge": "human", "feedback_store": "postgresql://me:secret@host/db"}, "host/db"),
        ({"reward": ["human"], "feedback_store": "ours.db"}, None),
        ({"reward": ["human"], "feedback_store": "here/../ours.db"}, None),
        ({"reward": ["model"], "feedback_store": "theirs.db"}, None),
        ({"reward": ["human"], "feedback_store": 3}, None),
    ],
)
def test_a_run_that_asks_people_in_another_store_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], expected: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    found = other_store(Studio(Workspace([tmp_path]), store=str(tmp_path / "ours.db")), settings)
    assert (None if found is None else found["run"].endswith(str(expected))) == (None if expected is None else True)
    assert "secret" not in str(found)
