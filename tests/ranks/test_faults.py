"""A process of a job that is killed or stands still, and signals: the job ends soon, nothing is lost, it resumes."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from ppolm.feedback.store import FeedbackStore
from ppolm.ranks.heartbeat import BEAT_SECONDS, SILENT_SECONDS
from ppolm.ranks.join import LOOK_SECONDS
from tests.ranks.launching import TRAIN, Job, run, start

pytestmark = pytest.mark.slow
LONG = [*TRAIN, "--max-steps", "500", "--run-name", "x"]


def steps(folder: Path) -> int:
    try:
        lines = (folder / "runs" / "x" / "metrics.jsonl").read_text().splitlines()
        return sum(json.loads(line)["kind"] == "train" for line in lines)
    except OSError:
        return 0


def wait_for_steps(job: Job, folder: Path) -> list[int]:
    """The processes of a job, once it has taken two steps."""
    until = time.monotonic() + 240
    while steps(folder) < 2:
        assert job.code is None, job.printed()
        assert time.monotonic() < until
        time.sleep(0.1)
    found = job.workers()
    assert len(found) == 2
    return found


@pytest.mark.parametrize(("number", "lost"), [(signal.SIGKILL, 1), (signal.SIGSTOP, 0)])
def test_a_lost_process_ends_the_job_and_it_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, lost: int
) -> None:
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "3")  # the launcher's 30 s are counted by the next test
    with start(2, "ppolm", "train", *LONG, cwd=tmp_path, cold=number == signal.SIGKILL) as job:
        pids = wait_for_steps(job, tmp_path)
        try:
            os.kill(pids[lost], number)
            code, output = job.end(240)
        finally:
            for pid in pids:
                if Path(f"/proc/{pid}").exists():
                    os.kill(pid, signal.SIGKILL)
    assert code != 0
    if number == signal.SIGSTOP:
        assert f"process {lost} of 2 has not been heard of" in output, output
    done = steps(tmp_path)
    code, output = run(1, "ppolm", "train", "--resume", "runs/x", "--max-steps", str(done + 1), cwd=tmp_path)
    assert code == 0, output


def test_a_job_with_a_process_that_stands_still_ends_within_a_minute() -> None:
    launcher = 30  # seconds that torchrun gives a process to end before it kills it
    assert SILENT_SECONDS + 2 * BEAT_SECONDS + launcher < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_processes_at_the_same_step(tmp_path: Path, number: signal.Signals) -> None:
    with start(2, "ppolm", "train", *LONG, cwd=tmp_path) as job:
        os.kill(wait_for_steps(job, tmp_path)[1], number)  # the launcher tells the others later, or not at all
        _, output = job.end(240)
    assert "Resume with: ppolm train --resume" in output, output
    status = json.loads((tmp_path / "runs" / "x" / "status.json").read_text())
    assert status["state"] == "interrupted"
    newest = max(path.name for path in (tmp_path / "runs" / "x" / "checkpoints").iterdir())
    assert int(newest.removeprefix("step-")) == steps(tmp_path), "nothing that was finished is lost"


def test_a_signal_to_the_first_process_ends_its_wait_for_people_and_stops_the_others_too(tmp_path: Path) -> None:
    """The others have heard no signal, and have waited longer than one look at the store takes."""
    flags = [*LONG, "--reward", "human", "--human-timeout", "600", "--feedback-store", str(tmp_path / "feedback.db")]
    with start(2, "ppolm", "train", *flags, cwd=tmp_path) as job:
        until = time.monotonic() + 240
        while not (tmp_path / "feedback.db").exists() or not waiting(tmp_path / "feedback.db"):
            assert job.code is None, job.printed()
            assert time.monotonic() < until
            time.sleep(0.2)
        time.sleep(LOOK_SECONDS + 2)
        os.kill(job.workers()[0], signal.SIGTERM)
        _, output = job.end(120)
    assert "Resume with: ppolm train --resume" in output, output
    assert json.loads((tmp_path / "runs" / "x" / "status.json").read_text())["state"] == "interrupted"
    assert "has not been heard of" not in output


def waiting(place: Path) -> bool:
    return bool(FeedbackStore(str(place), create=False).waiting(live=True))
