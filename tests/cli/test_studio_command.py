"""``ppolm studio``: what it says, what it refuses, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from tests.studio.serving import Client

COMMAND = [sys.executable, "-m", "ppolm", "studio", "--port", "0", "--no-open"]


def start(*flags: str) -> tuple[subprocess.Popen[str], list[str]]:
    """A studio in a process of its own, and the lines that it printed."""
    process = subprocess.Popen([*COMMAND, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    assert process.stdout is not None
    while not lines or "Ctrl-C" not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], process.communicate()[1]
    return process, lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_example_opens_by_its_link_and_ends_quietly(number: signal.Signals) -> None:
    process, lines = start("--example")
    try:
        link = next(line.split()[1] for line in lines if line.startswith("Open"))
        port, key = link.removeprefix("http://127.0.0.1:").split("/open?key=")
        client = Client(int(port))
        assert client.open(key).status == 200
        assert [run["id"] for run in client.get("/api/runs").json["runs"]] == ["first-look"]
        process.send_signal(number)
        rest, errors = process.communicate(timeout=20)
        assert (process.returncode, rest, errors) == (0, "", "")
    finally:
        process.kill()
        process.communicate()


def test_another_address_needs_annotators_and_prints_a_link_for_each(tmp_path: Path, capsys: Any) -> None:
    assert ppolm(["studio", str(tmp_path), "--host", "0.0.0.0"]) == 1
    assert "--annotators" in capsys.readouterr().err
    (tmp_path / "people").write_text("ann 0123456789abcdef0\nben 0123456789abcdef1\n")
    process, lines = start(str(tmp_path), "--host", "0.0.0.0", "--annotators", str(tmp_path / "people"))
    try:
        judges = [line for line in lines if line.startswith("Judge")]
        assert [line.split()[-1] for line in judges] == ["(ann)", "(ben)"]
        assert "http://127.0.0.1:" in lines[1]
    finally:
        process.kill()
        process.communicate()


def test_what_cannot_be_served_is_a_sentence(tmp_path: Path, capsys: Any) -> None:
    assert ppolm(["studio", str(tmp_path / "nowhere")]) == 1
    assert "There is no folder" in capsys.readouterr().err
    assert ppolm(["studio", str(tmp_path), "--port", "99999"]) == 1
    assert "port" in capsys.readouterr().err
    assert ppolm(["studio", str(tmp_path), "--host", "192.0.2.1", "--annotators", str(tmp_path / "no")]) == 1
    assert "cannot be read" in capsys.readouterr().err
