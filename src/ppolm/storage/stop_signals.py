"""Ctrl-C and SIGTERM while a training runs: what is half done is finished or undone, never left as it is."""

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

SIGNALS = (signal.SIGINT, signal.SIGTERM)
AT_ONCE = 2
"""Signals that end a step before it is over: a person who presses Ctrl-C once more. SIGTERM counts as so many at once,
for it mostly comes from a machine that kills a few seconds later, and a step can take minutes."""
AGAIN = 1.0
"""Seconds until a signal that some library caught is repeated."""
SOON = 0.05
"""Seconds until one is repeated that came while Python was clearing up: what a finaliser raises is lost there."""
ANNOUNCED = b"stopping after this step; once more: at once, and without it\n"


class Stopped(KeyboardInterrupt):
    """A signal asked to end, and the training is in a state that can be left.

    It is a KeyboardInterrupt, so that whatever lets those through (rewards, time limits, scripts) does so with this.
    """

    def __init__(self, number: int, folder: Path | None = None, done: str = "") -> None:
        super().__init__(number, folder, done)
        self.number, self.folder, self.done = number, folder, done

    def __str__(self) -> str:
        name = signal.Signals(self.number).name
        saved = f"; all of it is saved in {self.folder}, resume from there" if self.folder is not None else ""
        return f"{name} {self.done or 'before anything was saved'}{saved}"


class Stopping:
    """Counts the signals while the ``with`` block runs; they interrupt only what is marked as interruptible.

    Handlers can be set in the main thread alone. Elsewhere nothing is changed, and a signal that is ignored on purpose
    (a job in the background) stays ignored.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that came first."""
        self.count = 0
        self._limit: float = math.inf
        self._before: dict[int, Any] = {}
        self._unraisable = sys.unraisablehook
        self._repeats = False
        """Whether the next signal is one that was counted already."""

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
            with suppress(OSError):  # a print may be under way, which cannot be entered twice
                os.write(2, ANNOUNCED)

    def _overhear(self, unraisable: Any) -> None:
        """A signal that comes while Python is clearing up is lost there: not worth a traceback, and sent again."""
        if not issubclass(unraisable.exc_type, Stopped):
            self._unraisable(unraisable)
        elif self.number is not None:
            threading.Timer(SOON, self._repeat, (self.number,)).start()

    def _repeat(self, number: int) -> None:
        if self._listens(number):
            self._repeats = True
            _knock(number)

    def _listens(self, number: int) -> bool:
        """Whether nobody else has taken over since."""
        return signal.getsignal(number) == self._hear

    def check(self, signals: int) -> None:
        """Raise once ``signals`` signals have come; called where nothing is half done."""
        if self.number is not None and self.count >= signals:
            raise Stopped(self.number)

    @contextmanager
    def interruptible(self, signals: int) -> Iterator[None]:
        """Let the given number of signals interrupt what follows anywhere: it must be something that can be undone."""
        before = self._limit
        self._limit = signals
        try:
            self.check(signals)
            yield
        finally:
            self._limit = before

    def shield(self) -> None:
        """From here on nothing is interrupted any more: what was interrupted is being put in order."""
        self._limit = math.inf


class Insisting(Stopping):
    """Interrupts at the first signal, and again as long as the block runs.

    Some libraries catch whatever is raised while they are imported and continue half loaded, as if no signal had come.
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


def _knock(number: int) -> None:
    """Have the main thread hear a signal."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)
