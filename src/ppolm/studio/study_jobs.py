"""Studies that are being made: each by a process of its own, since sampling loads a model and takes its time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ppolm.messages import cut, printable
from ppolm.studio.answers import BadRequestError, NotFoundError
from ppolm.studio.child_processes import end_process

KEPT_JOBS = 10
KEPT_LINES = 30
LONGEST_LINE = 500
END_SECONDS = 5.0
"""How long a process that was told to end may take, before it is killed."""


@dataclass
class Job:
    """One ``ppolm feedback study``."""

    id: str
    name: str
    process: asyncio.subprocess.Process
    state: str = "running"
    """running, done, failed or cancelled."""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    following: asyncio.Task[None] | None = None
    """Reads what the process says, until it has ended."""

    def to_dict(self) -> dict[str, Any]:
        """As the page gets it."""
        seconds = (self.ended or time.monotonic()) - self.began
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "seconds": seconds,
            "lines": list(self.lines),
        }


class StudyJobs:
    """The processes of one studio, one at a time."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._starting = False

    def all(self) -> list[dict[str, Any]]:
        """What is being made, and what was, the newest first."""
        return [job.to_dict() for job in reversed(list(self._jobs.values()))]

    async def start(self, name: str, arguments: Sequence[str]) -> dict[str, Any]:
        """Begin to make a study, unless another is being made."""
        if self._starting or any(job.state == "running" for job in self._jobs.values()):
            raise BadRequestError("Another study is being made. Wait until it is done, or cancel it.")
        self._starting = True
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ppolm", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        except (OSError, ValueError) as error:
            raise BadRequestError(f"The study's process could not be started: {error}.") from error
        finally:
            self._starting = False
        job = Job(secrets.token_hex(8), name, process)
        self._jobs[job.id] = job
        while len(self._jobs) > KEPT_JOBS:
            self._jobs.popitem(last=False)
        job.following = asyncio.create_task(self._follow(job))
        return job.to_dict()

    async def cancel(self, id_: str) -> dict[str, Any]:
        """End a process; a study that is not complete is not stored."""
        job = self._jobs.get(id_)
        if job is None:
            raise NotFoundError("There is no such study being made.")
        if job.state == "running":
            job.state = "cancelled"
            with contextlib.suppress(ProcessLookupError):
                job.process.terminate()
            try:
                await asyncio.wait_for(job.process.wait(), END_SECONDS)
            except (TimeoutError, asyncio.TimeoutError):
                with contextlib.suppress(ProcessLookupError):
                    job.process.kill()
            if job.following is not None:
                await asyncio.wait([job.following], timeout=END_SECONDS)
        return job.to_dict()

    async def _follow(self, job: Job) -> None:
        """Keep what a process says, until it ends; it never outlives the studio."""
        assert job.process.stdout is not None
        rest = ""
        try:
            while chunk := await job.process.stdout.read(4096):
                *lines, rest = (rest + chunk.decode("utf-8", "replace")).replace("\r", "\n").split("\n")
                rest = rest[-LONGEST_LINE:]
                job.lines.extend(cut(printable(line), LONGEST_LINE) for line in lines if line.strip())
            if rest.strip():
                job.lines.append(cut(printable(rest), LONGEST_LINE))
            code = await job.process.wait()
            if job.state == "running":
                job.state = "done" if code == 0 else "failed"
        finally:
            job.ended = time.monotonic()
            if job.process.returncode is None:
                job.state = "cancelled"
            await end_process(job.process)
