"""One rollout on several servers: work is spread over them, and moved when one fails."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ppolm.engines.vllm_client import ServerFaultError
from ppolm.engines.vllm_messages import Job
from ppolm.engines.vllm_pool import AbandonedError, Use, VllmPool
from ppolm.engines.vllm_server import Version, VllmServer
from ppolm.errors import EngineError
from ppolm.rollout.sampling import Sampled

LOGS = "Look at the servers' logs, and raise engine_timeout if answers take longer than that. Then resume the run."


@dataclass(eq=False)
class _Attempt:
    """One sending of a job. It is its own token: whatever a server says late belongs to an attempt that is over."""

    job: Job
    server: VllmServer
    life: int
    """Which of the server's lives it was sent to: what a dead process failed at says nothing of the next one."""
    faults: int
    """The server's faults in a row at that time: failures of requests that were sent together are one fault."""
    samples: list[Sampled] | None = None
    error: Exception | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the server was given up meanwhile, even if it is back."""
        return self.server.down is not None or self.server.lives != self.life


class VllmRollout:
    """Has all jobs done by the servers of a pool."""

    def __init__(
        self,
        pool: VllmPool,
        jobs: Sequence[Job],
        called: Callable[[Job], str] = lambda job: f"{len(job.prompt)} tokens",
    ) -> None:
        """``called`` says to a user which prompt a job has."""
        self.pool, self.jobs, self.called, self.patience = pool, list(jobs), called, pool.patience
        self._waiting = list(jobs)
        self._flying = dict[int, _Attempt]()
        self._done = dict[int, list[Sampled]]()
        self._failures = Counter[int]()
        self._replies: queue.SimpleQueue[_Attempt] = queue.SimpleQueue()
        self._done_before, self._fruitless = -1, 0

    def run(self, version: Version, stop: threading.Event | None = None) -> list[list[Sampled]]:
        """The samples of every job, from a version that the servers have; raises if ``stop`` is set before the end."""
        try:
            with self.pool.use(version, stop or threading.Event()) as use:
                while len(self._done) < len(self.jobs):
                    if use.stop.is_set():
                        raise AbandonedError("The rollout was given up.")
                    self._need_a_server(use)
                    self._launch(version.name)
                    self._receive()
                    self._take_back()
        finally:
            for job in self.jobs:  # a server should not go on computing what nobody reads
                job.over.set()
        return [self._done[job.number] for job in self.jobs]

    def _need_a_server(self, use: Use) -> None:
        """Wait if none is left, but not for ever for some that come back and never do any work."""
        if self.pool.up:
            return
        self._fruitless = self._fruitless + 1 if len(self._done) == self._done_before else 0
        self._done_before = len(self._done)
        if self._fruitless >= self.patience.returns:
            raise EngineError(f"Servers come back, but do not do their work: {self.pool.reasons()}. {LOGS}")
        self.pool.need_one(use)

    def _launch(self, name: str) -> None:
        """Send what the servers have room for; the same jobs go to the same servers as long as none fails."""
        up, waiting, self._waiting = self.pool.up, self._waiting, []
        busy = Counter(id(attempt.server) for attempt in self._flying.values())
        for job in waiting:
            failures = self._failures[job.number]
            server = up[(job.number + failures // self.patience.faults) % len(up)] if up else None
            if server is None or busy[id(server)] >= self.patience.in_flight:
                self._waiting.append(job)
                continue
            busy[id(server)] += 1
            attempt = self._flying[job.number] = _Attempt(job, server, server.lives, server.faults)
            waits = max(server.faults, failures % self.patience.faults)
            delay = self.patience.back_off * 2 ** (waits - 1) if waits > 0 else 0.0
            work = (name, attempt, delay, self._replies)
            threading.Thread(target=_work, args=work, daemon=True, name="vLLM request").start()

    def _receive(self) -> None:
        """Wait for an answer; without any for a while, see whether the servers that owe one are alive."""
        try:
            attempt = self._replies.get(timeout=self.patience.look)
        except queue.Empty:
            self._look_at_servers()
            return
        job, server = attempt.job, attempt.server
        if self._flying.get(job.number) is not attempt:
            return
        if attempt.samples is not None:
            del self._flying[job.number]
            self._done[job.number] = attempt.samples
            server.faults = server.silences = 0
        elif not attempt.is_lost:
            del self._flying[job.number]
            self._failed(attempt)

    def _failed(self, attempt: _Attempt) -> None:
        """Count a fault; raises if it is a mistake in the settings, or if the job fails wherever it is sent."""
        job, server, error = attempt.job, attempt.server, attempt.error
        if not isinstance(error, ServerFaultError):
            assert error is not None
            raise error
        if attempt.faults == server.faults:
            server.faults += 1
        if error.gone or server.faults >= self.patience.faults:
            self.pool.drop(server, str(error))
        self._failures[job.number] += 1
        if self._failures[job.number] >= self.patience.tries:
            raise EngineError(
                f"A request failed {self.patience.tries} times, the last time because server {server.url} {error}. "
                f"Its prompt: {self.called(job)}. {LOGS}"
            )
        self._send_again(job)

    def _send_again(self, job: Job) -> None:
        self.pool.moved += 1
        self._waiting.append(job)

    def _take_back(self) -> None:
        """Give the work of servers that are out of use, or were meanwhile, to others."""
        for attempt in [one for one in self._flying.values() if one.is_lost]:
            del self._flying[attempt.job.number]
            self._send_again(attempt.job)

    def _look_at_servers(self) -> None:
        """Give up servers that owe answers and have not even said that they are alive for a while."""
        for server in {attempt.server.url: attempt.server for attempt in self._flying.values()}.values():
            server.silences = 0 if server.client.is_healthy() else server.silences + 1
            if server.silences >= self.patience.silences:
                self.pool.drop(server, "does not answer /health")


def _work(name: str, attempt: _Attempt, delay: float, replies: queue.SimpleQueue[_Attempt]) -> None:
    if delay:
        time.sleep(delay)
    if attempt.job.over.is_set():  # its adapter may be gone by now
        return
    try:
        attempt.samples = attempt.server.client.sample(name, attempt.job)
    except Exception as error:  # judged by whoever waits for the reply
        attempt.error = error
    replies.put(attempt)
