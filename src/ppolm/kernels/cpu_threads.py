"""How many CPU threads a model uses: as many as pay off for its width. How they wait for each other: cpu_waiting.py."""

from __future__ import annotations

import functools
import os

import torch

from ppolm.kernels.cpu_waiting import watch_neighbours

WIDTH_OF_A_THREAD = 64
"""Columns of a hidden state that keep a thread busy: with fewer per thread, waiting takes longer than computing.
Measured on two cores: a second thread gains nothing for a model of width 64, and a fifth for one of width 128."""


def use_threads(asked: int | None, width: int) -> None:
    """Let torch use as many threads as were asked for, or as pay off for a model of this width.

    This applies to the whole process, including backward passes and optimisers: torch offers nothing finer. Of two
    models in one process, the one loaded last decides for both, unless both ask for the same number. If none is asked
    for, OMP_NUM_THREADS takes precedence.
    """
    most = available()  # cached before the first change: one model's count must not limit the next
    if asked is not None:
        torch.set_num_threads(asked)
    elif not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(max(1, min(most, width // WIDTH_OF_A_THREAD)))
    if torch.get_num_threads() > 1:
        watch_neighbours()


@functools.cache
def available() -> int:
    """The number of threads that torch or the user had chosen before the first model was loaded."""
    return torch.get_num_threads()
