"""Products of float32 states with frozen bfloat16 weights, in the precision that this machine multiplies fastest.

Some CPUs store bfloat16 but multiply float32 faster: there a product of many rows is done in float32, from weights that
are converted for it and stay in bfloat16.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional

from ppolm.base_setup.cpu_bfloat16 import make_bfloat16_safe

WIDE_ROWS = 64
"""Rows from which converting the weights costs less than it saves."""
CLEARLY = 1.25
"""One precision is taken for faster than the other only by so much: timings are noisy, and the choice must repeat."""


@functools.cache
def bfloat16_speedup() -> float:
    """How many times as fast as in float32 a product in bfloat16 is on this CPU."""
    make_bfloat16_safe()
    left, right = torch.randn(256, 1024), torch.randn(3072, 1024)
    pairs = {dtype: (left.to(dtype), right.to(dtype)) for dtype in (torch.float32, torch.bfloat16)}
    best = dict.fromkeys(pairs, float("inf"))
    for _ in range(6):
        for dtype, pair in pairs.items():
            start = time.perf_counter()
            functional.linear(*pair)
            best[dtype] = min(best[dtype], time.perf_counter() - start)
    return best[torch.float32] / best[torch.bfloat16]


class _Mode:
    """How products are computed now."""

    single_tokens = False
    many_rows: torch.dtype | None = None


def many_rows_dtype() -> torch.dtype:
    """The precision of products of many float32 states with bfloat16 weights: what was set, or is faster here."""
    if _Mode.many_rows is None:
        return torch.float32 if bfloat16_speedup() < 1 / CLEARLY else torch.bfloat16
    return _Mode.many_rows


def set_many_rows_dtype(dtype: torch.dtype | None) -> None:
    """Multiply as an interrupted training did, in the whole process: a timing may choose otherwise. None: time it."""
    _Mode.many_rows = dtype


@contextmanager
def single_tokens() -> Iterator[None]:
    """While one token after the other is sampled, few rows are multiplied in the precision of the weights."""
    _Mode.single_tokens = True
    try:
        yield
    finally:
        _Mode.single_tokens = False


def product_dtype(x: Tensor, weight: Tensor) -> torch.dtype:
    """The precision of the product of states x [n, d] with a weight.

    In scoring and training it does not depend on the number of rows: both must give the same log-probabilities.
    """
    if weight.dtype == x.dtype or (_Mode.single_tokens and len(x) < WIDE_ROWS):
        return weight.dtype
    return many_rows_dtype()


class _Room:
    """Memory for one converted matrix at a time: taken anew for each, it would be returned and cleared every time."""

    def __init__(self) -> None:
        self.memory = torch.empty(0)

    def convert(self, matrix: Tensor) -> Tensor:
        """The matrix in float32, until the next one is asked for."""
        if self.memory.numel() < matrix.numel():
            self.memory = torch.empty(matrix.numel())
        if not matrix.is_contiguous():  # copied as it lies in memory, and so still transposed
            return self.convert(matrix.T).T
        return self.memory[: matrix.numel()].view_as(matrix).copy_(matrix)


_room = _Room()


def converted(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A frozen weight in the precision of a product, to be used at once: the next call may overwrite it."""
    return weight if weight.dtype == dtype else _room.convert(weight)


TILE = 4096
"""Rows of the output matrix that are converted at once."""


def logits(x: Tensor, matrix: Tensor) -> Tensor:
    """x Wᵀ [n, V] for an output matrix W [V, d], a tile at a time where it has to be converted."""
    dtype = product_dtype(x, matrix)
    if dtype == matrix.dtype:
        return x.to(dtype) @ matrix.T
    x, answer = x.to(dtype), torch.empty(len(x), len(matrix), dtype=dtype, device=x.device)
    for start in range(0, len(matrix), TILE):
        tile = converted(matrix[start : start + TILE], dtype)
        answer[:, start : start + TILE] = x @ tile.T
    return answer
