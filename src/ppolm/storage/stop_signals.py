"""Ctrl-C and SIGTERM during training: a step in progress is finished or undone, never left half done."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ppolm.ranks import Ranks

SIGNALS = (signal.SIGINT, signal.SIGTERM)
AT_ONCE = 2
"""Signals that abort a step in progress: a second Ctrl-C. One SIGTERM counts as this many, because it mostly comes from
a machine that kills the process a few seconds later, and a step can take minutes."""
AGAIN = 1.0
"""Seconds until a signal that a library may have caught is repeated."""
SOON = 0.05
"""Seconds until a signal that was lost in a finaliser, which cannot propagate exceptions, is repeated."""
ANNOUNCED = b"stopping after this step; press Ctrl-C again to stop now and discard it\n"
ANNOUNCED_TO_ALL = b"stopping all processes after this step; torchrun kills those that run for another 30 s\n"
"""Of several processes: none can leave a step that the others are in."""


class Stopped(KeyboardInterrupt):
    """Training was stopped by a signal, in a state from which it can be resumed.

    It is a KeyboardInterrupt, so that code that lets those through (rewards, time limits, scripts) lets this through.
    """

    def __init__(self, number: int, folder: Path | None = None, done: str = "") -> None:
        super().__init__(number, folder, done)
        self.number, self.folder, self.done = number, folder, done

    def __str__(self) -> str:
        name = signal.Signals(self.number).name
        saved = f"; all of it is saved in {self.folder}, resume from there" if self.folder is not None else ""
        return f"{name} {self.done or 'before anything was saved'}{saved}"


class Stopping:
    """Counts signals while the ``with`` block runs; they interrupt only what is marked as interruptible.

    Handlers can be set only in the main thread; in other threads nothing is changed. A signal that is ignored on
    purpose (as in a background job) stays ignored.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """The first signal received."""
        self.count = 0
        self._limit: float = math.inf
        self._before: dict[int, Any] = {}
        self._unraisable = sys.unraisablehook
        self._repeats = False
        """Whether the next signal repeats one that was already counted."""

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in SIGNALS}
            self._before = {n: old for n, old in handlers.items() if old not in (None, signal.SIG_IGN)}
            for number, old in self._before.items():
                outer = getattr(old, "__self__", None)
                if isinstance(outer, Stopping) and outer.number is not None:  # received, not yet acted on
                    self.number, self.count = outer.number, outer.count
                signal.signal(number, self._hear)
            self._unraisable, sys.unraisablehook = sys.unraisablehook, self._overhear
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if sys.unraisablehook == self._overhear:
            sys.unraisablehook = self._unraisable

    def _hear(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.number is None:
            self.number = number
        repeated, self._repeats = self._repeats, False
        if not repeated:
            self.count += AT_ONCE if number == signal.SIGTERM else 1
        if self.count >= self._limit:
            raise Stopped(self.number)
        if self.count == 1 and not repeated:
            self._announce()

    def _announce(self) -> None:
        """Say that the signal was heard."""
        _write(ANNOUNCED)

    def _overhear(self, unraisable: Any) -> None:
        """A signal that arrives in a finaliser is lost there: show no traceback, and send it again."""
        if not issubclass(unraisable.exc_type, Stopped):
            self._unraisable(unraisable)
        elif self.number is not None:
            threading.Timer(SOON, self._repeat, (self.number,)).start()

    def _repeat(self, number: int) -> None:
        if self._listens(number):
            self._repeats = True
            _knock(number)

    def _listens(self, number: int) -> bool:
        """Whether our handler is still installed."""
        return signal.getsignal(number) == self._hear

    def count_interrupt(self) -> None:
        """Count a KeyboardInterrupt that code has raised by itself: it means the same as Ctrl-C."""
        self.number = self.number or signal.SIGINT
        self.count += 1

    def check(self, signals: int) -> None:
        """Raise if at least ``signals`` signals have arrived; called only where nothing is half done."""
        if self.number is not None and self.count >= signals:
            raise Stopped(self.number)

    def interrupted(self, signals: int) -> bool:
        """Whether an error that is not ``Stopped`` may come from an interruption: code may raise one of its own."""
        return self.count >= signals

    def settle(self) -> None:
        """Called once the training has stopped, before what is left to do."""

    @contextmanager
    def interruptible(self, signals: int) -> Iterator[None]:
        """Let this many signals interrupt the block at any point, so everything in it must be undoable."""
        before = self._limit
        self._limit = signals
        try:
            self.check(signals)
            yield
        finally:
            self._limit = before

    def shield(self) -> None:
        """Allow no further interruption, while what was interrupted is cleaned up."""
        self._limit = math.inf


class Agreeing(Stopping):
    """Signals to a job of several processes, which reach them at different moments: all stop at the same place.

    A step is not interrupted, because the others would wait in it, except where the first process acts for all of them
    and tells them: where it waits for people, for example.
    """

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self.ranks = ranks

    def _announce(self) -> None:
        """One process speaks for all. If another one alone has heard the signal, what was saved is said at the end."""
        if self.ranks.first:
            _write(ANNOUNCED_TO_ALL)

    def check(self, signals: int) -> None:
        """Raise on all processes if at least so many signals have reached one of them."""
        self.settle()
        super().check(signals)

    def interrupted(self, signals: int) -> bool:  # noqa: ARG002
        """Never: where the first process is interrupted, all of them are told ``Stopped``.

        And an error of one process alone must not lead it into an exchange that the others are not in.
        """
        return False

    def settle(self) -> None:
        """Let all processes count the same signals: the others may have heard none."""
        heard = max(self.ranks.gather((self.number or 0, self.count)), key=lambda heard: heard[1])
        self.number, self.count = heard[0] or self.number, heard[1]

    @contextmanager
    def interruptible(self, signals: int) -> Iterator[None]:
        """Interruptible only while the first process acts alone."""

        @contextmanager
        def guard() -> Iterator[None]:
            before, self._limit = self._limit, signals
            try:
                yield
            except BaseException as error:
                if self.number is None or self.count < signals or isinstance(error, Stopped):
                    raise
                raise Stopped(self.number) from error  # interrupted code may raise an error of its own
            finally:
                self._limit = before

        self.check(signals)
        before, self.ranks.guard = self.ranks.guard, guard
        try:
            yield
        finally:
            self.ranks.guard = before


def stopping_of(ranks: Ranks) -> Stopping:
    """How signals stop a job of so many processes."""
    return Agreeing(ranks) if ranks.size > 1 else Stopping()


class Insisting(Stopping):
    """Interrupts at the first signal, and repeatedly while the block runs.

    Some libraries catch any exception raised during their import and continue half loaded, as if nothing had happened.
    """

    def __init__(self) -> None:
        super().__init__()
        self._limit = 1
        self._lock, self._over = threading.Lock(), threading.Event()

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._over.set()
        super().__exit__(*error)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            threading.Thread(target=self._insist, args=(number,), daemon=True, name="signal again").start()
        super()._hear(number, frame)

    def _insist(self, number: int) -> None:
        while not self._over.wait(AGAIN):
            with self._lock:
                if self._over.is_set():
                    return
                if self._listens(number):
                    _knock(number)


def _write(line: bytes) -> None:
    """To standard error; not print(), which is not reentrant."""
    with suppress(OSError):
        os.write(2, line)


def _knock(number: int) -> None:
    """Send a signal to the main thread."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)
