"""How many threads a model is computed with on a CPU: as many as pay for its size. How they wait: cpu_waiting.py."""

from __future__ import annotations

import functools
import os

import torch

from ppolm.kernels.cpu_waiting import watch_neighbours

WIDTH_OF_A_THREAD = 64
"""Columns of a state that keep a thread busy: with fewer for each, threads wait for each other longer than they work.
Measured on two cores: a model 64 wide is as fast with one thread, one 128 wide gains a fifth by the second."""


def use_threads(asked: int | None, width: int) -> None:
    """Let torch use as many threads as were asked for, or as pay off for a model of this width.

    It holds for the whole process, backward passes and optimisers included: torch knows no other way. Of two models
    in one process the one loaded last decides for both, unless both ask for the same number. A number in
    OMP_NUM_THREADS is left alone.
    """
    most = available()  # read first: one model's number must not decide for the next
    if asked is not None:
        torch.set_num_threads(asked)
    elif not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(max(1, min(most, width // WIDTH_OF_A_THREAD)))
    if torch.get_num_threads() > 1:
        watch_neighbours()


@functools.cache
def available() -> int:
    """The number of threads that torch, or the user, had chosen before the first model was loaded."""
    return torch.get_num_threads()
