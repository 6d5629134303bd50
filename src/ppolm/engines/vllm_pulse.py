"""Whether a server that owes an answer is getting on with it: told from signs of progress, not from the time it takes.

A server can answer /health while the engine behind it stands still, and a good one can take minutes over one answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 3.0
"""How many times its longest pause so far a server may take."""


class StalledError(Exception):
    """A server that has shown no progress for too long."""


class Pulse:
    """Signs of progress of one server, from all requests that wait for it.

    A sign is an answer, or a change of what ``look`` returns. The limit is max(``shortest``, 3 · p), with p the longest
    pause after which this server went on by itself. There is none until the first answer: a server may have to compile
    first.
    """

    def __init__(
        self, look: Callable[[], object], shortest: float, every: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``look`` is called at most every so many seconds, by one of the waiting requests."""
        self._look, self.shortest, self.every, self._clock = look, shortest, every, clock
        self.stalled = False
        """Whether it was given up, and has answered nothing since."""
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._waiting, self._answered = 0, False
        self._longest = 0.0
        self._sign: object = None
        self._moved = self._looked = 0.0

    @property
    def limit(self) -> float | None:
        """Seconds without a sign after which the server is given up; None if they are not counted."""
        return max(self.shortest, PATIENCE * self._longest) if self._answered else None

    @contextmanager
    def request(self) -> Iterator[None]:
        """Around a request. Time in which nothing was asked is no pause."""
        with self._lock:
            if not self._waiting:
                self._moved, self._sign = self._clock(), None
            self._waiting += 1
        try:
            yield
            self._go_on()
            self._answered, self.stalled = True, False
        finally:
            with self._lock:
                self._waiting -= 1

    def check(self) -> None:
        """Called while waiting: look for a sign; raises StalledError when there has been none for too long."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            if self._clock() - self._looked >= self.every:
                self._see(self._look())
                self._looked = self._clock()
        finally:
            self._looking.release()
        quiet, limit = self._clock() - self._moved, self.limit
        if limit is not None and quiet > limit:
            self.stalled = True
            raise StalledError(f"has made no progress for {quiet:.0f} s")

    def forget(self) -> None:
        """It may be another process by now, which has to compile as the first one had."""
        self._answered, self._longest = False, 0.0

    def _see(self, sign: object) -> None:
        """Compare with the look before; the first one tells nothing."""
        if sign is not None:
            before, self._sign = self._sign, sign
            if before not in (None, sign):
                self._go_on()

    def _go_on(self) -> None:
        with self._lock:
            now = self._clock()
            if self._answered:  # what came before may have been compiling
                self._longest = max(self._longest, now - self._moved)
            self._moved = now
