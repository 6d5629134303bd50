"""The models that the page has loaded, each in a process of its own: seldom more than one, and none that nobody uses.

The server itself never imports torch: it stays light, and a model that crashes or runs out of memory takes nothing
with it but its own process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any

from ppolm.errors import ModelProcessError
from ppolm.studio.worker_process import ModelChoice, Patience, WorkerProcess

PATIENCE = Patience()
GRACE = 5.0
"""Seconds in which a process has to stop what it does when nobody waits for it any more."""


class ModelsBusyError(ModelProcessError):
    """More is asked for than can wait."""


class ModelWorkers:
    """Requests to models, first come, first served; for one event loop."""

    def __init__(self, most: int = 1, waiting: int = 8, patience: Patience = PATIENCE, device: str = "auto") -> None:
        """``most`` models loaded at a time, and ``waiting`` requests at most, the running ones included."""
        self.most, self.waiting, self.patience, self.device = most, waiting, patience, device
        self._workers: dict[ModelChoice, WorkerProcess] = {}
        self._busy: dict[ModelChoice, asyncio.Task[dict[str, Any]]] = {}
        self._used: dict[ModelChoice, float] = {}
        """When each was last free, the longest unused first."""
        self._timers: dict[ModelChoice, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._door = asyncio.Lock()
        self._freed = asyncio.Event()
        self.pending = 0
        """Requests that wait or are worked on."""
        self._closed = False

    async def ask(self, choice: ModelChoice, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The model's answer. It is loaded if it is not; another one that nobody uses makes room for it.

        Raises ModelProcessError with a sentence. If the caller is cancelled, so is the model's work.
        """
        if self.pending >= self.waiting:
            raise ModelsBusyError(f"{self.pending} requests to models are waiting already. Try again in a moment.")
        self.pending += 1
        try:
            async with self._door:  # asyncio's locks are fair: first come, first served
                worker = await self._free_worker(choice)
                task = asyncio.create_task(worker.ask(asked))
                self._busy[choice] = task
                task.add_done_callback(lambda _: self._free(choice))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                self._background(self._interrupt(worker, task))
                raise
        finally:
            self.pending -= 1

    async def _free_worker(self, choice: ModelChoice) -> WorkerProcess:
        """A process for this model that does nothing else; waits until there is one."""
        while not self._closed:
            worker = self._workers.get(choice)
            if worker is not None and not worker.alive and choice not in self._busy:
                del self._workers[choice]
                worker = None
            idle = [other for other in self._used if other in self._workers and other not in self._busy]
            if worker is not None and choice not in self._busy:
                self._stop_timer(choice)
                return worker
            if worker is None and len(self._workers) < self.most:
                self._workers[choice] = WorkerProcess(choice, self.device, self.patience)
                return self._workers[choice]
            if worker is None and idle:
                await self._unload(idle[0], "Another model was asked for.")
                continue
            self._freed.clear()
            await self._freed.wait()
        raise ModelProcessError("The studio is closing.")

    def _free(self, choice: ModelChoice) -> None:
        """A request is over, whatever came of it."""
        task = self._busy.pop(choice, None)
        if task is not None and not task.cancelled():
            task.exception()  # seen: a caller that was cancelled does not ask for it
        worker = self._workers.get(choice)
        self._used.pop(choice, None)
        if worker is not None and worker.alive:
            self._used[choice] = time.monotonic()
            self._stop_timer(choice)
            loop = asyncio.get_running_loop()
            self._timers[choice] = loop.call_later(self.patience.idle, self._expire, choice)
        elif worker is not None:
            del self._workers[choice]
        self._freed.set()

    def _expire(self, choice: ModelChoice) -> None:
        if choice not in self._busy:
            self._background(self._unload(choice, "It was not used for a while."))

    def _stop_timer(self, choice: ModelChoice) -> None:
        timer = self._timers.pop(choice, None)
        if timer is not None:
            timer.cancel()

    async def _unload(self, choice: ModelChoice, why: str) -> None:
        self._stop_timer(choice)
        self._used.pop(choice, None)
        worker = self._workers.pop(choice, None)
        if worker is not None:
            await worker.end(why)
        self._freed.set()

    async def _interrupt(self, worker: WorkerProcess, task: asyncio.Task[dict[str, Any]]) -> None:
        await worker.interrupt()
        done, _ = await asyncio.wait([task], timeout=GRACE)
        if not done:
            await worker.end("It did not stop when its request was cancelled.")

    def _background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def loaded(self) -> list[dict[str, Any]]:
        """What is loaded or being loaded, for the page: which model, what it says of itself, whether it works."""
        return [
            {
                "kind": choice.kind,
                "folder": str(choice.folder),
                "which": choice.which,
                "about": worker.about,
                "working": choice in self._busy,
                "idle_seconds": time.monotonic() - self._used[choice] if choice in self._used else None,
                "pid": worker.pid,
            }
            for choice, worker in self._workers.items()
            if worker.alive
        ]

    async def unload(self) -> int:
        """End every process that does nothing, to have its memory back; how many."""
        idle = [choice for choice in self._workers if choice not in self._busy]
        for choice in idle:
            await self._unload(choice, "It was unloaded.")
        return len(idle)

    async def close(self) -> None:
        """End all processes, whatever they do; for the end of the server."""
        self._closed = True
        self._freed.set()
        for choice in list(self._timers):
            self._stop_timer(choice)
        tasks = list(self._busy.values())
        await asyncio.gather(*(worker.end("The studio is closing.") for worker in list(self._workers.values())))
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*tasks, *self._tasks, return_exceptions=True), GRACE)
        self._workers.clear()
