"""A time limit on a call that runs in the caller's thread.

A user's function may use things that are tied to a thread: ``signal.alarm``, a database connection, an event loop. So
it stays in its thread, and another thread watches the clock and interrupts it when the time is up.
"""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")

KNOCK = getattr(signal, "SIGURG", None) if hasattr(signal, "pthread_kill") else None
"""The signal that interrupts a call: rarely used and ignored by default. SIGALRM is left to ``signal.alarm``."""
AGAIN = 1.0
"""Seconds between interruptions, since the code may catch the first one."""


class TimeOver(BaseException):
    """The time limit was exceeded. Not an Exception, so that ``except Exception`` in the call does not swallow it."""


def call_within(seconds: float, function: Callable[[], T], name: str) -> T:
    """What ``function()`` returns or raises, or TimeOver if that takes too long.

    In the main thread on Unix, a signal interrupts Python code and blocking calls (sleep, sockets, locks, processes).
    Elsewhere only Python code can be interrupted, so a blocking call is interrupted once it returns. Native code that
    does not return to the interpreter runs to its end; a warning then says what is being waited for.
    """
    limit = _Limit(seconds, name)
    try:
        try:
            limit.arm()
            answer = function()
        finally:
            limit.disarm()
    except BaseException as error:
        limit.disarm()  # an interruption may have cut the first disarm() short; the next one is not due so soon
        if isinstance(error, (KeyboardInterrupt, SystemExit)) or not limit.struck:
            raise  # once interrupted, any other error may be the code's own way to report the interruption
    if limit.struck:  # even with an answer: whether a late one counts must not depend on chance
        raise TimeOver
    return answer


class _Limit:
    """The timer of one call, with the thread that interrupts it."""

    def __init__(self, seconds: float, name: str) -> None:
        self.seconds, self.name = seconds, name
        self.thread = threading.get_ident()
        self.armed = self.struck = False
        self.lock, self.done = threading.Lock(), threading.Event()
        in_main = threading.current_thread() is threading.main_thread()
        self.before: Any = signal.getsignal(KNOCK) if KNOCK is not None and in_main else None
        """The signal's previous handler. None if it could not be restored, in which case the signal is not used."""
        self.unraisable = sys.unraisablehook

    def arm(self) -> None:
        """Start the timer."""
        if KNOCK is not None and self.before is not None:
            signal.signal(KNOCK, self._hear)
            sys.unraisablehook = self._overhear
        self.armed = True
        threading.Thread(target=self._watch, daemon=True, name=f"clock of {self.name}").start()

    def disarm(self) -> None:
        """Stop the timer; nothing is interrupted after this. May be called twice."""
        self.armed = False
        with self.lock:  # waits for a signal that is just being sent
            self.done.set()
            if KNOCK is not None and self.before is not None:
                signal.signal(KNOCK, self.before)
                sys.unraisablehook = self.unraisable
            elif self.struck:
                _raise_in(self.thread, None)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.armed and self.struck:
            raise TimeOver
        if not self.struck and callable(self.before):
            self.before(number, frame)

    def _overhear(self, unraisable: Any) -> None:
        """Do not show an interruption that was raised in a finaliser and so lost: another one follows."""
        if unraisable.exc_type is not TimeOver:
            self.unraisable(unraisable)

    def _watch(self) -> None:
        if self.done.wait(min(self.seconds, threading.TIMEOUT_MAX)):
            return
        self._knock()
        if not self.done.wait(AGAIN):
            log.warning(
                "%s has exceeded its limit of %g s and cannot be interrupted yet; waiting for it to return.",
                self.name,
                self.seconds,
            )
            self._knock()
        while not self.done.wait(AGAIN):
            self._knock()

    def _knock(self) -> None:
        with self.lock:
            if not self.armed:
                return
            self.struck = True
            if KNOCK is not None and self.before is not None:
                signal.pthread_kill(self.thread, KNOCK)
            else:
                _raise_in(self.thread, TimeOver)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Make a thread raise an error at its next Python instruction; None cancels one that it has not raised yet."""
    given = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)
