"""Of the processes of one job the first speaks; the others say only what is wrong with themselves."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ppolm.ranks.join import own_number, said_by_first


class Nowhere(io.TextIOBase):
    """A stream that nobody reads."""

    def write(self, text: str) -> int:
        """Discard it."""
        return len(text)


@contextmanager
def quiet_unless_first() -> Iterator[None]:
    """Discard output and progress of every process but the first; a traceback is still printed."""
    if own_number() == 0:
        yield
        return
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Nowhere(), Nowhere()
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        logging.disable(logging.NOTSET)


def complain(line: str) -> None:
    """Print an error, unless the first process prints the same; with the number of the process if it is another one."""
    number, known = own_number(), said_by_first(line)
    if number == 0:
        print(line, file=sys.stderr)
    elif not known:
        print(f"{line} (process {number} of the job)", file=sys.__stderr__)
