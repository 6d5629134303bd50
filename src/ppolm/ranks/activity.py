"""What the main thread of a process is at, and for how long it has not moved: the heartbeat's question."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

WORKS, WAITS, ACTS = "works", "waits", "acts"
"""It computes; it waits for the others in an exchange; it acts for all of them, who wait for it as long as it takes."""
ENDED, FAILED = "ended", "failed"
"""The process has gone: as it should, or with an error."""
LIFE = 0.02
"""Share of one core that a process uses if it does anything. One that waits for others on gloo uses 0.003."""
EXCHANGES = os.path.join("torch", "distributed")
"""Where exchanges that are not ours are made, such as those of a sharded base."""


class Moment(NamedTuple):
    """What a process does."""

    state: str
    exchange: int
    """The number of the exchange that it has entered last."""
    still: float
    """For how many seconds it has not moved."""

    def __str__(self) -> str:
        return f"{self.state} {self.exchange} {self.still:.1f}"

    @classmethod
    def of(cls, text: str) -> Moment:
        """The moment that was written like this."""
        state, exchange, still = text.split()
        return cls(state, int(exchange), float(still))


class Activity:
    """The state of the main thread, which sets it, as another thread sees it."""

    def __init__(self) -> None:
        self.state, self.exchange = WORKS, 0
        self._main = threading.main_thread()
        self._place: object = None
        self._moved, self._looked, self._used = time.monotonic(), time.monotonic(), 0.0

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """In here the process waits for the others."""
        self.exchange += 1
        with self._being(WAITS):
            yield

    @contextmanager
    def acting(self) -> Iterator[None]:
        """In here it acts for all of them."""
        with self._being(ACTS):
            yield

    @contextmanager
    def _being(self, state: str) -> Iterator[None]:
        before, self.state = self.state, state
        try:
            yield
        finally:
            self.state = before

    def look(self) -> Moment:
        """What the main thread does now. To be called every few seconds by one other thread."""
        now, used = time.monotonic(), time.process_time() - time.thread_time()
        frame = sys._current_frames().get(self._main.ident or 0)
        place = (self.exchange, self.state, position(frame))
        computes = used - self._used > LIFE * (now - self._looked)
        if computes or place != self._place or runs(self._main.native_id):
            self._moved = now
        self._place, self._looked, self._used = place, now, used
        waits = self.state == WORKS and frame is not None and EXCHANGES in frame.f_code.co_filename
        return Moment(WAITS if waits else self.state, self.exchange, now - self._moved)


def position(frame: FrameType | None) -> tuple[tuple[int, int], ...]:
    """Where a thread is, down to the instruction in each function that it is in."""
    found = []
    while frame is not None:
        found.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def runs(thread: int | None) -> bool:
    """Whether a thread would run if a core were free, or waits for a disk, as far as the system says so."""
    with suppress(OSError, IndexError):
        about = Path(f"/proc/self/task/{thread}/stat").read_text()
        return about.rpartition(")")[2].split()[0] in "RD"
    return False
