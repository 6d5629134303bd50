"""Output whose reader has gone, as with ``| head``: no traceback, neither at once nor at the end."""

from __future__ import annotations

import os
import sys
from typing import Any


class Heard:
    """A stream of text that outlives its reader: what is written after that goes nowhere.

    If what it carries is the product of the command, nobody wants the rest of it: ``ends`` says to end, quietly. What
    a training says of its progress is no reason to stop it.
    """

    def __init__(self, stream: Any, ends: bool) -> None:
        self._stream, self._ends = stream, ends

    def write(self, text: str) -> int:
        """As the stream does, while somebody reads."""
        try:
            return int(self._stream.write(text))
        except BrokenPipeError:
            self._mute()
            return len(text)

    def flush(self) -> None:
        """Likewise."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._mute()

    def _mute(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # what is still in its buffer has to go somewhere
        os.close(nowhere)
        if self._ends:
            raise SystemExit(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def outlive_readers() -> None:
    """Let the reader of this program's output close it early."""
    for name, ends in (("stdout", True), ("stderr", False)):
        if getattr(sys, name) is not None:  # a program without a terminal may have none
            setattr(sys, name, Heard(getattr(sys, name), ends))
