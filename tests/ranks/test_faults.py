"""A process of a job that is killed or stands still, and signals: the job ends soon, nothing is lost, it resumes."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from ppolm.errors import NoStoreError
from ppolm.feedback.store import FeedbackStore
from ppolm.ranks.heartbeat import BEAT_SECONDS, SILENT_SECONDS
from ppolm.ranks.join import LOOK_SECONDS
from tests.ranks.launching import TRAIN, run, start, workers
from tests.warm import Program

pytestmark = pytest.mark.slow
LONG = [*TRAIN, "--max-steps", "500", "--run-name", "x"]


def steps(folder: Path) -> int:
    try:
        lines = (folder / "runs" / "x" / "metrics.jsonl").read_text().splitlines()
        return sum(json.loads(line)["kind"] == "train" for line in lines)
    except OSError:
        return 0


def wait_for_steps(job: Program, folder: Path) -> list[int]:
    """The processes of a job, once it has taken two steps."""
    until = time.monotonic() + 240
    while steps(folder) < 2:
        assert job.code is None, job.out
        assert time.monotonic() < until
        time.sleep(0.1)
    found = workers(job)
    assert len(found) == 2
    return found


def test_a_process_that_is_killed_or_stands_still_ends_its_job_and_it_resumes(tmp_path: Path) -> None:
    """The one while the other is waited for: silence is noticed late, and the launcher is patient too."""
    silent, killed = tmp_path / "silent", tmp_path / "killed"
    for folder in (silent, killed):
        folder.mkdir()
    with start(2, "ppolm", "train", *LONG, cwd=silent) as job:
        pids = wait_for_steps(job, silent)
        try:
            os.kill(pids[0], signal.SIGSTOP)
            with start(2, "ppolm", "train", *LONG, cwd=killed, cold=True) as other:
                os.kill(wait_for_steps(other, killed)[1], signal.SIGKILL)
                assert other.end(240) != 0
            resumes(killed)
            assert job.end(240) != 0
            assert "process 0 of 2 has not been heard of" in job.out, job.out
            resumes(silent)
        finally:
            for pid in pids:
                if Path(f"/proc/{pid}").exists():
                    os.kill(pid, signal.SIGKILL)


def resumes(folder: Path) -> None:
    more = str(steps(folder) + 1)
    code, output = run(1, "ppolm", "train", "--resume", "runs/x", "--max-steps", more, cwd=folder)
    assert code == 0, output


def test_a_job_with_a_process_that_stands_still_ends_within_a_minute() -> None:
    launcher = 30  # seconds that torchrun gives a process to end before it kills it
    assert SILENT_SECONDS + 2 * BEAT_SECONDS + launcher < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_processes_at_the_same_step(tmp_path: Path, number: signal.Signals) -> None:
    with start(2, "ppolm", "train", *LONG, cwd=tmp_path) as job:
        os.kill(wait_for_steps(job, tmp_path)[1], number)  # the launcher tells the others later, or not at all
        job.end(240)
        output = job.out
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
        while not waiting(tmp_path / "feedback.db"):
            assert job.code is None, job.out
            assert time.monotonic() < until
            time.sleep(0.2)
        time.sleep(LOOK_SECONDS + 2)
        os.kill(workers(job)[0], signal.SIGTERM)
        job.end(120)
        output = job.out
    assert "Resume with: ppolm train --resume" in output, output
    assert json.loads((tmp_path / "runs" / "x" / "status.json").read_text())["state"] == "interrupted"
    assert "has not been heard of" not in output


def waiting(place: Path) -> bool:
    try:
        return bool(FeedbackStore(str(place), create=False).waiting(live=True))
    except NoStoreError:  # its file is there before its tables are
        return False
