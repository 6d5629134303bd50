"""Several servers as one: every version is brought to all of them, and one that comes back is used again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from ppolm.engines.vllm_client import ServerFaultError
from ppolm.engines.vllm_server import MODES, UNSEEN, LogprobsMode, Version, VllmServer
from ppolm.errors import EngineError, PpolmError

log = logging.getLogger(__name__)
CLOSES_WITHIN = 5.0
"""Seconds that closing waits for whatever is being brought to the servers at that moment."""


@dataclass(frozen=True)
class Patience:
    """How long servers are waited for, in seconds, and how often they may fail."""

    back_off: float = 0.5
    """Before the first retry; each further one waits twice as long."""
    faults: int = 3
    """Faults in a row after which a server is out of use."""
    tries: int = 6
    """Failures of one request, on whatever server, after which it is the request that cannot be done."""
    returns: int = 2
    """Times in a row that servers may come back and be lost again before any of them has answered a request."""
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


class AbandonedError(EngineError):
    """A rollout that nobody wants any more."""


@dataclass(eq=False)
class Use:
    """A rollout under way, from a version that servers must have until it ends. ``stop`` ends it early."""

    version: Version
    stop: threading.Event = field(default_factory=threading.Event)


class VllmPool:
    """Brings versions to all servers, and knows which are in use."""

    def __init__(self, servers: Sequence[VllmServer], patience: Patience) -> None:
        self.servers = list(servers)
        self.patience = patience
        self.mode: LogprobsMode | None = None
        """What all servers report. It never changes: responses of one rollout would else be of two kinds."""
        self.moved = 0
        """Requests that had to be sent again."""
        self._uses: list[Use] = []
        self._lock = threading.RLock()  # a rollout may run beside an evaluation

    @property
    def up(self) -> list[VllmServer]:
        """The servers in use, in the order of their addresses."""
        return [server for server in self.servers if server.down is None]

    def take(self, version: Version) -> None:
        """Bring a version to every server, also to those that were down; raises if none is left."""
        with self._lock:
            unseen = [server for server in self.servers if server.down == UNSEEN]
            self._offer(version)
            for server in unseen if self.up else ():
                if server.down is not None:
                    log.warning("Server %s %s. The run begins without it.", server.url, server.down)
            if not self.up:
                self._wait(Use(version))

    @contextmanager
    def use(self, version: Version, stop: threading.Event) -> Iterator[Use]:
        """Around a rollout: a server that comes back meanwhile is given its version, too."""
        use = Use(version, stop)
        self._uses.append(use)
        try:
            yield use
        finally:
            self._uses.remove(use)

    def need_one(self, use: Use) -> None:
        """Wait for a server, if none is left."""
        with self._lock:
            if not self.up:
                self._wait(use)

    def drop(self, server: VllmServer, why: str) -> None:
        """Take a server out of use."""
        if server.down is None:
            server.down = why
            log.warning("Server %s %s. Its work goes to the other %d.", server.url, why, len(self.up))

    def reasons(self) -> str:
        """Why each server is out of use."""
        return "; ".join(f"{server.url} {server.down}" for server in self.servers if server.down is not None)

    def close(self) -> None:
        """End rollouts under way, and unload what was loaded; the servers can be used again afterwards."""
        for use in list(self._uses):
            use.stop.set()
        held = self._lock.acquire(timeout=CLOSES_WITHIN)  # a thread that brings a version would load after us
        try:
            # Also from those out of use: without its folder an adapter would be a trap.
            _at_once([server.unload_all for server in self.servers])
        finally:
            if held:
                self._lock.release()

    def _offer(self, version: Version) -> None:
        """Bring versions to all servers at the same time; what a server fails at takes it out of use."""
        in_use = {use.version.name: use.version for use in self._uses if not use.stop.is_set()}
        versions = [one for _, one in sorted({**in_use, version.name: version}.items())]
        _at_once([lambda server=server: self._offer_to(server, versions) for server in self.servers])  # type: ignore[misc]
        if self.mode is None and self.up:
            self.mode = self._common_mode()

    def _offer_to(self, server: VllmServer, versions: Sequence[Version]) -> None:
        before = server.down
        for attempt in range(self.patience.faults):
            try:
                server.take(versions, self.mode)
            except ServerFaultError as fault:
                server.down = str(fault)
                if fault.gone:
                    break
                time.sleep(self.patience.back_off * 2**attempt)
            except EngineError as error:
                if not server.was_up:  # a mistake in the settings; later it is a fault of that server alone
                    raise
                server.down = str(error).removeprefix(f"Server {server.url} ").removesuffix(".")
                break
            else:
                if before not in (None, UNSEEN):
                    log.warning("Server %s is back.", server.url)
                return
        if before is None:
            log.warning("Server %s %s. The others do its work.", server.url, server.down)

    def _common_mode(self) -> LogprobsMode:
        modes = {server.mode: server.url for server in self.up}
        if len(modes) > 1:
            raise EngineError(
                f"Servers {modes['raw']} and {modes['processed']} report different log-probabilities. Start both "
                f"with the same --logprobs-mode, such as {MODES['raw']}."
            )
        return next(iter(modes))

    def _wait(self, use: Use) -> None:
        """Wait for a server to come back; one that was never there, or answers wrongly, is not waited for."""
        until = time.monotonic() + self.patience.alone
        while any(server.was_up and not server.is_wrong for server in self.servers):
            if time.monotonic() > until:
                break
            if use.stop.wait(self.patience.back_off):
                raise AbandonedError("The rollout was given up.")
            self._offer(use.version)
            if self.up:
                return
        how = "(docs/engines-vllm.md has the command)"
        if any(server.was_up for server in self.servers):
            raise EngineError(f"No server is left: {self.reasons()}. Start one again {how}, and resume the run.")
        raise EngineError(f"No sampling server can be used: {self.reasons()}. Start one {how}, or change engine_url.")


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
        with suppress(RuntimeError):  # a process that ends may start no more threads
            thread.start()
    for thread in threads:
        if thread.ident is not None:
            thread.join()
    for error in sorted(errors, key=lambda error: not isinstance(error, PpolmError)):
        raise error
