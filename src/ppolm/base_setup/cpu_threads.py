"""How many threads a model is computed with on a CPU: as many as pay for its size."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

WIDTH_OF_A_THREAD = 64
"""Columns of a state that keep a thread busy: with fewer for each, threads wait for each other longer than they work.
Measured on two cores: a model 64 wide is as fast with one thread, one 128 wide gains a tenth by the second."""
NUMBERS_OF_A_THREAD = 2048
"""Rows times columns that keep a thread busy when a single token of every row is computed. Measured on two cores, with
8 rows: a model 128 wide loses a tenth by the second thread; one 256 wide gains a tenth, and loses far more by it as
soon as another program is busy."""


@dataclass(frozen=True)
class Threads:
    """The threads that pay for a model."""

    most: int | None = None
    """What whole sequences are computed with; None if somebody else has decided, and nothing is to be changed."""
    width: int = 0
    """Columns of the model's states."""

    @contextmanager
    def for_tokens(self, rows: int) -> Iterator[None]:
        """While one token of each of so many rows is computed. The number depends on nothing else: results repeat."""
        fewer = max(1, rows * self.width // NUMBERS_OF_A_THREAD)
        if self.most is None or fewer >= self.most:
            yield
            return
        torch.set_num_threads(fewer)
        try:
            yield
        finally:
            torch.set_num_threads(self.most)


def use_threads(asked: int | None, width: int) -> Threads:
    """Let torch use so many threads as were asked for, or as pay for a model of this width.

    It holds for the whole process: torch knows no other way. A number in OMP_NUM_THREADS is left alone.
    """
    if asked is not None:
        torch.set_num_threads(asked)
        return Threads()
    if os.environ.get("OMP_NUM_THREADS"):
        return Threads()
    most = max(1, min(available(), width // WIDTH_OF_A_THREAD))
    torch.set_num_threads(most)
    return Threads(most, width)


@functools.cache
def available() -> int:
    """What torch, or whoever set it before the first model was loaded, takes for right."""
    return torch.get_num_threads()
