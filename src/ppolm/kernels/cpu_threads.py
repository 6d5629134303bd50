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
    """Let torch use so many threads as were asked for, or as pay for a model of this width.

    It holds for the whole process, backward passes and optimisers included: torch knows no other way. Of two models
    in one process the one loaded last decides for both, unless both ask for the same number. A number in
    OMP_NUM_THREADS is left alone.
    """
    most = available()  # asked first: what one model is given must not decide for the next
    if asked is not None:
        torch.set_num_threads(asked)
    elif not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(max(1, min(most, width // WIDTH_OF_A_THREAD)))
    if torch.get_num_threads() > 1:
        watch_neighbours()


@functools.cache
def available() -> int:
    """What torch, or whoever set it before the first model was loaded, takes for right."""
    return torch.get_num_threads()
