"""Output pipes that the reader closes early, as with ``| head``: no traceback, neither at once nor at exit."""

from __future__ import annotations

import os
import sys
from typing import Any


class Heard:
    """A text stream that survives a closed pipe: further output is discarded.

    With ``ends`` the program exits quietly instead: standard output carries the result of a command, and nobody reads
    the rest of it. A training that can no longer print its progress to standard error continues.
    """

    def __init__(self, stream: Any, ends: bool) -> None:
        self._stream, self._ends = stream, ends

    def write(self, text: str) -> int:
        """Write to the stream until its reader has gone."""
        try:
            return int(self._stream.write(text))
        except BrokenPipeError:
            self._mute()
            return len(text)

    def flush(self) -> None:
        """Flush the stream until its reader has gone."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._mute()

    def _mute(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # the rest of its buffer has to go somewhere
        os.close(nowhere)
        if self._ends:
            raise SystemExit(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def outlive_readers() -> None:
    """Let readers of standard output and standard error close them early."""
    for name, ends in (("stdout", True), ("stderr", False)):
        if getattr(sys, name) is not None:  # a program without a terminal may have none
            setattr(sys, name, Heard(getattr(sys, name), ends))
