"""A process that fails or hangs: the others end soon, with the sentence that says why, and slow ones are left alone."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from torch.distributed import HashStore

from ppolm.errors import ProcessesError
from ppolm.ranks import join
from ppolm.ranks.heartbeat import BEAT_SECONDS, FAILED_SECONDS, STILL_SECONDS
from tests.ranks.launching import TRAIN, metrics, run
from tests.warm import QUIET, Program, start_warm

pytestmark = pytest.mark.slow
JOB = "tests.ranks.fault_job"
FLAGS = ["train", *TRAIN, "--max-steps", "3", "--run-name", "x"]
SLACK = 20.0
"""Seconds that a busy machine may take for what takes next to nothing."""


def on_two_hosts(fault: str, folder: Path, port: int, ranks: tuple[int, ...] = (0, 1)) -> list[Program]:
    """The processes of a job that no launcher watches together: each has one of its own, on its own machine."""
    common = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environments = [{**os.environ, **QUIET, **common, "RANK": str(rank)} for rank in ranks]
    return [start_warm(JOB, fault, *FLAGS, cwd=folder, environment=one) for one in environments]


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_process_that_computes_is_waited_for_and_one_that_sleeps_ends_the_job(tmp_path: Path) -> None:
    code, output = run(2, JOB, "slow_and_then_asleep", *FLAGS, cwd=tmp_path)
    assert code != 0
    assert output.count("process 1 of 2 did not come to where the others wait, and did not compute or move for") == 1
    assert [row["step"] for row in metrics(tmp_path / "runs" / "x") if row["kind"] == "train"] == [1]


def test_a_process_that_hangs_is_noticed_within_a_minute_without_the_launcher() -> None:
    assert STILL_SECONDS + 3 * BEAT_SECONDS < 60, "all processes end themselves, also the one that hangs"


def test_a_process_that_fails_alone_does_not_keep_those_on_other_hosts_waiting(tmp_path: Path, port: int) -> None:
    here, there = on_two_hosts("no_data", tmp_path, port)
    with here, there:
        assert there.end(240) == 1
        failed = time.monotonic()
        assert here.end(240) != 0
        assert time.monotonic() - failed < FAILED_SECONDS + 2 * BEAT_SECONDS + SLACK
        assert "error: There are no prompts on this machine. (process 1 of the job)" in there.err
        assert there.err.count("error:") == here.err.count("error:") == 1, here.err
        assert "process 1 of 2 has ended with an error" in here.err or "has lost another one" in here.err, here.err


def test_a_process_that_was_not_started_is_not_waited_for_forever(tmp_path: Path, port: int) -> None:
    (alone,) = on_two_hosts("nobody", tmp_path, port, ranks=(0,))
    with alone:
        assert alone.end(120) == 1
        assert "error: Process 0 could not join the other 1: " in alone.err
        assert (
            f"Were all of them started, or did one fail and say why? Can each reach 127.0.0.1, port {port}?"
            in alone.err
        )


def test_who_did_not_join_a_store_that_the_launcher_keeps_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "JOIN_SECONDS", 0.2)
    store = HashStore()
    store.set("joined/2", "done")
    with pytest.raises(ProcessesError, match="Of the 4 processes of this job 1, 3 did not join within 0 s"):
        join._meet(join.StoreNotices(store), 0, 4)


def test_an_error_of_one_process_in_a_shared_reward_is_said_and_is_not_a_failed_score(tmp_path: Path) -> None:
    code, output = run(2, JOB, "no_memory", *FLAGS, "--on-reward-error", "default", cwd=tmp_path)
    assert code != 0
    assert output.count("error: There is not enough memory (the device is full).") == 1, output
    assert "terminate called" not in output
    assert "scores set to" not in output
