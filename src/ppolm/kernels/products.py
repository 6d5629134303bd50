"""Products of float32 states with frozen 16-bit weights, in the precision that this kind of CPU multiplies fastest.

Some CPUs can store bfloat16 but multiply float32 faster. There, a product of many rows runs in float32: the weights
stay in bfloat16 and are converted for each product.
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
"""Number of rows from which converting the weights costs less than it saves."""
TILE = 4096
"""Rows of the output matrix that are converted at once, and whose logits stay in the cache of a CPU."""

PreparedLayers = Callable[[Sequence[Any], Tensor], list[Tensor] | None]
"""Another way to compute linear layers that read the same input; returns None for layers that it does not handle."""


@dataclass(frozen=True)
class ComputeMode:
    """How products are computed. Each base setup owns a mode and enters it for every pass through the model."""

    many_rows: torch.dtype = torch.float32
    """Precision of products of many float32 states with weights of lower precision."""
    sampling: bool = False
    """Tokens are being sampled one at a time: products of few rows use the precision of the weights."""
    prepared: PreparedLayers | None = None
    """Layers prepared for sampling, if any."""
    owner: object = field(default=None, compare=False, repr=False)
    """Identifies the model the mode belongs to: a pass through another model in the middle of it uses its own mode."""


_PLAIN = ComputeMode()
_mode: ContextVar[ComputeMode] = ContextVar("compute_mode", default=_PLAIN)


def current_mode() -> ComputeMode:
    """The mode of the pass running in this thread."""
    return _mode.get()


@contextmanager
def computing(mode: ComputeMode) -> Iterator[None]:
    """Compute in ``mode`` inside a ``with``. Passes of other models in other threads keep their own mode."""
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


def finite(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x, bounded if it is to be, or comes from, a float16: beyond 65504 that would be infinite, and spoil a whole row.

    Other precisions reach as far as float32.
    """
    limit = torch.finfo(torch.float16).max
    return x.clamp(-limit, limit) if dtype == torch.float16 else x


class _Scratch(threading.local):
    """Memory for one converted matrix at a time: allocated per matrix, it would be freed and cleared every time.

    Sharing it between models is safe: every matrix is written before it is read, and used before the next one.
    """

    def __init__(self) -> None:
        self.memory = self._allocate(0, torch.device("cpu"))

    @staticmethod
    def _allocate(size: int, device: torch.device) -> Tensor:
        with torch.inference_mode(False):  # a tensor allocated in inference mode could not be written to outside it
            return torch.empty(size, dtype=torch.float32, device=device)

    def convert(self, matrix: Tensor) -> Tensor:
        """The matrix in float32, valid until the next call in this thread."""
        if self.memory.numel() < matrix.numel() or self.memory.device != matrix.device:
            self.memory = self._allocate(matrix.numel(), matrix.device)
        if not matrix.is_contiguous():  # stored transposed: copy in memory order, then transpose the copy
            return self.convert(matrix.T).T
        return self.memory[: matrix.numel()].view_as(matrix).copy_(matrix)


_scratch = _Scratch()


def converted(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A frozen weight in the precision of a product. Use it at once: the next call may overwrite it."""
    return weight if weight.dtype == dtype else _scratch.convert(weight)


def logits(x: Tensor, matrix: Tensor) -> Tensor:
    """x Wᵀ [n, V] for an output matrix W [V, d], tile by tile where it has to be converted."""
    dtype = product_dtype(x, matrix)
    if dtype == matrix.dtype:
        return x.to(dtype) @ matrix.T
    x, answer = x.to(dtype), torch.empty(len(x), len(matrix), dtype=dtype, device=x.device)
    for start in range(0, len(matrix), TILE):
        tile = converted(matrix[start : start + TILE], dtype)
        answer[:, start : start + TILE] = x @ tile.T
    return answer
