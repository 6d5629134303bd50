"""Several servers as one: work is spread over them, moved when one fails, and given to one that comes back."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ppolm.engines.vllm_client import ServerFaultError
from ppolm.engines.vllm_messages import Job
from ppolm.engines.vllm_server import MODES, UNSEEN, Version, VllmServer
from ppolm.errors import EngineError, PpolmError
from ppolm.rollout.sampling import Sampled

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """How long servers are waited for, in seconds, and how often they may fail."""

    back_off: float = 0.5
    """Before the first retry; each further one waits twice as long."""
    faults: int = 3
    """Faults in a row after which a server is out of use."""
    look: float = 2.0
    """Between looks at whether servers that owe an answer are alive."""
    silences: int = 3
    """Looks in a row without an answer after which a server is out of use: a busy one may be slow to say that it is."""
    stalled: float = 45.0
    """Without any progress, after which a server is out of use, however alive it says it is (vllm_pulse.py)."""
    alone: float = 120.0
    """For any server to come back when none is left: as long as one takes to start."""
    in_flight: int = 64
    """Requests that a server has at a time; more would only wait inside it."""


@dataclass(frozen=True)
class _Reply:
    job: Job
    server: VllmServer
    samples: list[Sampled] | None
    error: Exception | None


class VllmPool:
    """Brings versions to all servers, and jobs to those that are up."""

    def __init__(self, servers: Sequence[VllmServer], patience: Patience) -> None:
        self.servers = list(servers)
        self.patience = patience
        self.moved = 0
        """Requests that had to be sent again."""
        self._lock = threading.RLock()  # a rollout may run beside an evaluation

    @property
    def up(self) -> list[VllmServer]:
        """The servers in use, in the order of their addresses."""
        return [server for server in self.servers if server.down is None]

    def take(self, version: Version) -> None:
        """Bring a version to every server, also to those that were down; raises if none is left."""
        with self._lock:
            unseen = [server for server in self.servers if server.down == UNSEEN]
            self._offer(version, self.servers)
            for server in unseen if self.up else ():
                if server.down is not None:
                    log.warning("Server %s %s. The run begins without it.", server.url, server.down)
            modes = {server.mode: server.url for server in self.up}
            if len(modes) > 1:
                raise EngineError(
                    f"Servers {modes['raw']} and {modes['processed']} report different log-probabilities. Start both "
                    f"with the same --logprobs-mode, such as {MODES['raw']}."
                )
            if not self.up:
                self._wait(version)

    def sample(self, version: Version, jobs: Sequence[Job]) -> list[list[Sampled]]:
        """The samples of every job."""
        replies: queue.SimpleQueue[_Reply] = queue.SimpleQueue()
        waiting, flying = list(jobs), dict[int, VllmServer]()
        done: dict[int, list[Sampled]] = {}
        while len(done) < len(jobs):
            if not self.up:
                with self._lock:
                    self._wait(version)
            waiting = self._launch(version.name, waiting, flying, replies)
            try:
                reply = replies.get(timeout=self.patience.look)
            except queue.Empty:
                self._look_at({one.url: one for one in flying.values()}.values())
            else:
                if flying.get(reply.job.number) is reply.server:  # else it was moved, and this answer comes too late
                    del flying[reply.job.number]
                    if reply.samples is not None:
                        done[reply.job.number] = reply.samples
                        reply.server.faults = reply.server.silences = 0
                    else:
                        waiting.append(self._failed(reply))
            lost = [job for job in jobs if job.number in flying and flying[job.number].down is not None]
            waiting += lost
            self.moved += len(lost)
            for job in lost:
                del flying[job.number]
        return [done[job.number] for job in jobs]

    def _launch(
        self, name: str, waiting: list[Job], flying: dict[int, VllmServer], replies: queue.SimpleQueue[_Reply]
    ) -> list[Job]:
        """Send what the servers have room for; the same jobs go to the same servers as long as none fails."""
        up, kept = self.up, []
        for job in waiting:
            server = up[job.number % len(up)]
            if sum(one is server for one in flying.values()) >= self.patience.in_flight:
                kept.append(job)
                continue
            flying[job.number] = server
            delay = self.patience.back_off * 2 ** (server.faults - 1) if server.faults else 0.0
            work = (name, job, server, delay, replies)
            threading.Thread(target=_work, args=work, daemon=True, name="vLLM request").start()
        return kept

    def _look_at(self, servers: Iterable[VllmServer]) -> None:
        """Give up servers that owe answers and have not even said that they are alive for a while."""
        for server in servers:
            server.silences = 0 if server.client.is_healthy() else server.silences + 1
            if server.silences >= self.patience.silences:
                self._drop(server, "does not answer /health")

    def _failed(self, reply: _Reply) -> Job:
        """Count a fault; raises if it is a mistake in the settings, which every server would refuse."""
        self.moved += 1
        if not isinstance(reply.error, ServerFaultError):
            assert reply.error is not None
            raise reply.error
        reply.server.faults += 1
        if reply.error.gone or reply.server.faults >= self.patience.faults:
            self._drop(reply.server, str(reply.error))
        return reply.job

    def _drop(self, server: VllmServer, why: str) -> None:
        if server.down is None:
            server.down = why
            left = len(self.up)
            log.warning("Server %s %s. Its work goes to the other %d.", server.url, why, left)

    def _offer(self, version: Version, servers: Sequence[VllmServer]) -> None:
        """Bring a version to these servers at the same time; what a server fails at takes it out of use."""

        def offer(server: VllmServer) -> None:
            before = server.down
            for attempt in range(self.patience.faults):
                try:
                    server.take(version)
                except ServerFaultError as fault:
                    server.down = str(fault)
                    if fault.gone:
                        break
                    time.sleep(self.patience.back_off * 2**attempt)
                except EngineError as error:
                    if not server.was_up:  # a mistake in the settings; later it is a fault of that server alone
                        raise
                    server.down = str(error)
                    break
                else:
                    if before not in (None, UNSEEN):
                        log.warning("Server %s is back.", server.url)
                    return
            if before is None:
                log.warning("Server %s %s. The others do its work.", server.url, server.down)

        _at_once([lambda server=server: offer(server) for server in servers])  # type: ignore[misc]

    def _wait(self, version: Version) -> None:
        """Wait for a server to come back; one that was never there, or answers wrongly, is not waited for."""
        until = time.monotonic() + self.patience.alone
        while any(server.was_up and not self._is_wrong(server) for server in self.servers):
            if time.monotonic() > until:
                break
            time.sleep(self.patience.back_off)
            self._offer(version, self.servers)
            if self.up:
                return
        reasons = "; ".join(f"{server.url} {server.down}" for server in self.servers)
        how = "(docs/engines-vllm.md has the command)"
        if any(server.was_up for server in self.servers):
            raise EngineError(f"No server is left: {reasons}. Start one again {how}, and resume the run.")
        raise EngineError(f"No sampling server can be used: {reasons}. Start one {how}, or change engine_url.")

    def _is_wrong(self, server: VllmServer) -> bool:
        return server.proof is not None and server.proof.problem is not None


def _work(name: str, job: Job, server: VllmServer, delay: float, replies: queue.SimpleQueue[_Reply]) -> None:
    time.sleep(delay)
    try:
        replies.put(_Reply(job, server, server.client.sample(name, job), None))
    except Exception as error:  # judged by whoever waits for the reply
        replies.put(_Reply(job, server, None, error))


def _at_once(acts: Sequence[Callable[[], None]]) -> None:
    """Run all in threads of their own; the first error is raised when all have ended."""
    errors: list[BaseException] = []

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(errors, key=lambda error: not isinstance(error, PpolmError)):
        raise error
