"""Products of float32 states with frozen bfloat16 weights, in the precision that this kind of CPU multiplies fastest.

Some CPUs store bfloat16 but multiply float32 faster: there a product of many rows is done in float32, from weights that
are converted for it and stay in bfloat16.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

WIDE_ROWS = 64
"""Rows from which converting the weights costs less than it saves."""
TILE = 4096
"""Rows of the output matrix that are converted at once."""

PreparedLayers = Callable[[Sequence[Any], Tensor], list[Tensor] | None]
"""Another way to compute linear layers that read the same input; None for layers that it leaves alone."""


@dataclass(frozen=True)
class ComputeMode:
    """How products are computed. A base setup owns one, and enters it for each pass through the model."""

    many_rows: torch.dtype = torch.float32
    """Precision of products of many float32 states with weights of lower precision."""
    sampling: bool = False
    """One token after the other is sampled: few rows are multiplied in the precision of the weights."""
    prepared: PreparedLayers | None = None
    """Layers made ready for sampling."""
    owner: object = field(default=None, compare=False, repr=False)
    """Tells whose mode this is: a pass through another model in the middle of it has that model's own."""


_PLAIN = ComputeMode()
_mode: ContextVar[ComputeMode] = ContextVar("compute_mode", default=_PLAIN)


def current_mode() -> ComputeMode:
    """The mode of the pass that is running in this thread."""
    return _mode.get()


@contextmanager
def computing(mode: ComputeMode) -> Iterator[None]:
    """Compute in a mode. Passes in other threads, of other models, keep their own."""
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


def product_dtype(x: Tensor, weight: Tensor) -> torch.dtype:
    """The precision of the product of states x [n, d] with a weight.

    In scoring and training it does not depend on the number of rows: both must give the same log-probabilities.
    """
    mode = current_mode()
    if weight.dtype == x.dtype or (mode.sampling and len(x) < WIDE_ROWS):
        return weight.dtype
    return mode.many_rows


class _Scratch(threading.local):
    """Memory for one converted matrix at a time: allocating it for each would return and clear it every time.

    Models share it, and it decides nothing: every matrix is written before it is read, and read before the next one.
    """

    def __init__(self) -> None:
        self.memory = self._allocate(0, torch.device("cpu"))

    @staticmethod
    def _allocate(size: int, device: torch.device) -> Tensor:
        with torch.inference_mode(False):  # memory taken inside it could not be written to outside of it
            return torch.empty(size, dtype=torch.float32, device=device)

    def convert(self, matrix: Tensor) -> Tensor:
        """The matrix in float32, until the next one is asked for in this thread."""
        if self.memory.numel() < matrix.numel() or self.memory.device != matrix.device:
            self.memory = self._allocate(matrix.numel(), matrix.device)
        if not matrix.is_contiguous():  # copied as it lies in memory, and so still transposed
            return self.convert(matrix.T).T
        return self.memory[: matrix.numel()].view_as(matrix).copy_(matrix)


_scratch = _Scratch()


def converted(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A frozen weight in the precision of a product, to be used at once: the next call may overwrite it."""
    return weight if weight.dtype == dtype else _scratch.convert(weight)


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
