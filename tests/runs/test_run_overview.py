"""A run at a glance: what a folder says of itself, whatever state it is in."""

from __future__ import annotations

import itertools
import json
import os
import socket
import time
from pathlib import Path

import pytest

from ppolm.runs.metrics_tail import MetricsTail, sampled_rows
from ppolm.runs.run_overview import find_runs, overview
from ppolm.runs.run_status import RunStatus, is_alive, read_status, utc_now
from tests.run_folders import make_run


def owned(folder: Path, pid: int, host: str | None = None) -> None:
    """Write the name of an owner into a folder's lock."""
    (folder / ".lock").write_text(json.dumps({"pid": pid, "host": host or socket.gethostname(), "since": "now"}))


def test_a_run_with_a_living_owner_runs_and_tells_when_it_will_end(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", status=RunStatus("running", 10))
    owned(run, os.getpid())
    found = overview(run)
    assert (found.state, found.step, found.total_steps, found.seconds_left) == ("running", 3, 10, 14.0)
    assert found.sparkline == (0.1, 0.2, 0.3)


def test_a_run_whose_process_is_gone_is_stopped_whatever_its_status_says(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", status=RunStatus("running", 10))
    owned(run, 2**22 + 1)  # beyond the largest process number
    assert overview(run).state == "stopped"
    assert "process is gone" in overview(run).why


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to know when a process was started")
def test_a_process_that_got_the_number_of_a_dead_owner_is_not_taken_for_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", status=RunStatus("running", 10))
    owned(run, os.getpid())
    long_ago = time.time() - 1e7
    os.utime(run / ".lock", (long_ago, long_ago))
    assert not is_alive(run)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("finished", ("finished", "")),
        ("converged", ("finished", "converged")),
        ("interrupted", ("stopped", "by a signal (Ctrl-C, SIGTERM)")),
        ("failed", ("stopped", "out of cheese")),
    ],
)
def test_how_a_run_ended_is_told(tmp_path: Path, state: str, expected: tuple[str, str]) -> None:
    run = make_run(tmp_path / "a", status=RunStatus(state, 3, why="out of cheese" if state == "failed" else ""))
    assert (overview(run).state, overview(run).why) == expected


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"state": 3}', '{"state": "running", "reasons": 5}', "\x00" * 50])
def test_a_damaged_status_never_raises(tmp_path: Path, damage: str) -> None:
    run = make_run(tmp_path / "a")
    (run / "status.json").write_text(damage)
    overview(run)
    read_status(run)


def test_rows_that_are_cut_off_or_not_numbers_are_gaps(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", steps=2)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 3, "avg_reward": null, "kl": "much"}\nnot json\n{"kind": "train", "st')
    found = overview(run)
    assert (found.step, found.reward, found.kl, found.sparkline) == (3, None, None, (0.1, 0.2, None))


def test_a_long_file_is_sampled_from_end_to_end(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", steps=5000, padding="x" * 300)
    rows = sampled_rows(run / "metrics.jsonl")
    steps = [row["step"] for row in rows]
    assert steps[0] == 1
    assert steps[-1] == 5000
    assert 40 <= len(steps) <= 48
    assert max(b - a for a, b in itertools.pairwise(steps)) < 400


def test_the_tail_reads_only_what_is_new_and_starts_again_when_the_file_was_replaced(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", steps=2)
    tail = MetricsTail(run / "metrics.jsonl")
    first = tail.refresh()
    assert [row["step"] for row in tail.rows()] == [1, 2]
    assert tail.refresh() == first
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 3}\n{"kind": "eval", "step": 3}\n{"kind": "tr')
    assert tail.refresh() > first
    assert ([row["step"] for row in tail.rows()], len(tail.rows("eval"))) == ([1, 2, 3], 1)
    replaced = tmp_path / "new.jsonl"
    replaced.write_text('{"kind": "train", "step": 1}\n')
    replaced.replace(run / "metrics.jsonl")
    tail.refresh()
    assert [row["step"] for row in tail.rows()] == [1]


def test_runs_are_found_in_folders_of_folders_and_other_folders_are_not_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "b")
    make_run(tmp_path / "runs" / "group" / "a")
    (tmp_path / "runs" / "reward").mkdir()
    (tmp_path / "runs" / "reward" / "config.yaml").write_text("")
    assert [path.name for path in find_runs(tmp_path)] == ["a", "b"]
    assert find_runs(tmp_path / "runs" / "b") == [tmp_path / "runs" / "b"]
    assert find_runs(tmp_path / "nothing") == []


def test_a_run_that_was_copied_or_installed_is_as_old_as_its_status_says(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", status=RunStatus("finished", 3, ended=utc_now()))
    long_ago = time.time() - 1e8
    os.utime(run / "metrics.jsonl", (long_ago, long_ago))
    assert overview(run).age < 60
    (run / "status.json").write_text(json.dumps({"state": "finished", "ended": "never"}))
    assert overview(run).age > 1e7
