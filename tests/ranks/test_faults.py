"""A process of a job that is killed or stands still, and signals: the job ends soon, nothing is lost, it resumes."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ppolm.errors import NoStoreError
from ppolm.feedback.store import FeedbackStore
from ppolm.ranks.heartbeat import BEAT_SECONDS, SILENT_SECONDS
from ppolm.ranks.join import LOOK_SECONDS
from tests.ranks.launching import TRAIN, run, start, workers
from tests.warm import Program

pytestmark = pytest.mark.slow
LAUNCHER_SECONDS = 30
"""What torchrun gives a process to end before it kills it."""
SLACK = 20
"""Seconds that a busy machine may take for what takes next to nothing."""
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
    """The one while the others are waited for: silence is noticed late, and the launcher is patient too."""
    folders = [tmp_path / name for name in ("killed", "first stopped", "second stopped")]
    for folder in folders:
        folder.mkdir()
    with stopped(0, folders[1]) as first, stopped(1, folders[2]) as second:
        with start(2, "ppolm", "train", *LONG, cwd=folders[0], cold=True) as killed:
            os.kill(wait_for_steps(killed, folders[0])[1], signal.SIGKILL)
            assert killed.end(240) != 0
        resumes(folders[0], processes=2)
        for number, job in enumerate((first, second)):
            assert job.seconds() < SILENT_SECONDS + 2 * BEAT_SECONDS + LAUNCHER_SECONDS + SLACK
            assert f"process {number} of 2 has not been heard of" in job.out, job.out
            assert job.out.count("error: process") == 1, job.out
            resumes(folders[number + 1])


class Watched:
    """A job of which a process was stopped, and when it ended."""

    def __init__(self, job: Program) -> None:
        self.job, self._stopped, self._ended = job, time.monotonic(), math.inf
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        assert self.job.end(240) != 0
        self._ended = time.monotonic()

    def seconds(self) -> float:
        """From the stop of the process to the end of the job."""
        self._thread.join()
        return self._ended - self._stopped

    @property
    def out(self) -> str:
        """What the job has printed."""
        return self.job.out


@contextmanager
def stopped(number: int, folder: Path) -> Iterator[Watched]:
    """A job of two, of which one process is stopped after two steps."""
    with start(2, "ppolm", "train", *LONG, cwd=folder) as job:
        pids = wait_for_steps(job, folder)
        try:
            os.kill(pids[number], signal.SIGSTOP)
            yield Watched(job)
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def resumes(folder: Path, processes: int = 1) -> None:
    more = str(steps(folder) + 1)
    code, output = run(processes, "ppolm", "train", "--resume", "runs/x", "--max-steps", more, cwd=folder)
    assert code == 0, output


def test_a_job_with_a_process_that_stands_still_ends_within_a_minute() -> None:
    assert SILENT_SECONDS + 2 * BEAT_SECONDS + LAUNCHER_SECONDS < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_processes_at_the_same_step(tmp_path: Path, number: signal.Signals) -> None:
    with start(2, "ppolm", "train", *LONG, cwd=tmp_path) as job:
        first, second = wait_for_steps(job, tmp_path)
        os.kill(second, number)  # the launcher tells the others later, or not at all
        if number == signal.SIGINT:
            os.kill(first, number)  # a terminal sends it to all of them
        job.end(240)
        output = job.out
    assert output.count("stopping all processes after this step") == (number == signal.SIGINT), output
    assert "press Ctrl-C again" not in output, "nobody can leave a step that the others are in"
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
