"""A time limit on a call that runs in the thread that asks for it.

A user's function may use what belongs to one thread: ``signal.alarm``, a database connection, an event loop. So it is
not sent to another thread; another thread watches the clock, and interrupts it when the time is over.
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
"""Hardly any program uses it, and by default it ends none; SIGALRM belongs to users of ``signal.alarm``."""
AGAIN = 1.0
"""Seconds between interruptions: code may have caught the first one."""


class TimeOver(BaseException):
    """The time of a call is over. No Exception, so that ``except Exception`` inside the call does not swallow it."""


def call_within(seconds: float, function: Callable[[], T], name: str) -> T:
    """What ``function()`` returns or raises, or TimeOver if that takes too long.

    In the main thread of a Unix program a signal interrupts Python code and calls that wait (sleep, sockets, locks,
    processes). Elsewhere only Python code can be interrupted, and what waits is interrupted when it returns. A library
    that computes without asking Python ends when it ends; a warning tells who is being waited for.
    """
    limit = _Limit(seconds, name)
    try:
        try:
            limit.arm()
            answer = function()
        finally:
            limit.disarm()
    except BaseException as error:
        limit.disarm()  # the interruption may have come while the first one was under way; there is no second so soon
        if isinstance(error, (KeyboardInterrupt, SystemExit)) or not limit.struck:
            raise  # after an interruption any other error may be the code's own way to say that it was interrupted
    if limit.struck:  # even if an answer came: whether a late one counts must not depend on chance
        raise TimeOver
    return answer


class _Limit:
    """The clock of one call, and the thread that interrupts it."""

    def __init__(self, seconds: float, name: str) -> None:
        self.seconds, self.name = seconds, name
        self.thread = threading.get_ident()
        self.armed = self.struck = False
        self.lock, self.done = threading.Lock(), threading.Event()
        in_main = threading.current_thread() is threading.main_thread()
        self.before: Any = signal.getsignal(KNOCK) if KNOCK is not None and in_main else None
        """The signal's previous handler. None: one that Python could not restore, so the signal is left alone."""
        self.unraisable = sys.unraisablehook

    def arm(self) -> None:
        """Start the clock."""
        if KNOCK is not None and self.before is not None:
            signal.signal(KNOCK, self._hear)
            sys.unraisablehook = self._overhear
        self.armed = True
        threading.Thread(target=self._watch, daemon=True, name=f"clock of {self.name}").start()

    def disarm(self) -> None:
        """Stop the clock; from here on nothing interrupts. May be called twice."""
        self.armed = False
        with self.lock:  # a signal that was about to be sent has been sent now
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
        """An interruption while Python was clearing up is lost there, and not worth a traceback: another follows."""
        if unraisable.exc_type is not TimeOver:
            self.unraisable(unraisable)

    def _watch(self) -> None:
        if self.done.wait(min(self.seconds, threading.TIMEOUT_MAX)):
            return
        self._knock()
        if not self.done.wait(AGAIN):
            log.warning("%s is over its %g s and has not stopped yet: waiting for it.", self.name, self.seconds)
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
    """Have a thread raise an error at its next step in Python code; None takes back what it has not raised yet."""
    given = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)
