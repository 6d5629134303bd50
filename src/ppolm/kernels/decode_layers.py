"""Linear layers prepared for sampling one token at a time: copies in the form that is fastest for few rows.

A sampling step multiplies few rows, and its time depends on the weights read and the number of operations. So layers
that read the same input are combined into one matrix, built once per rollout and discarded after it. The base itself
is never written to.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ppolm.kernels.cpu_bfloat16 import survives
from ppolm.kernels.lora_linear import Adapted, adapted
from ppolm.kernels.products import WIDE_ROWS

COPY_BYTES = 3 * 2**29
"""Limit for all copied weights; layers that would exceed it are used as they are."""
PAYS_AFTER = 8
"""Response length in tokens from which the copies cost less than they save."""


class DecodeLayers:
    """The layers of the active role for the duration of one rollout."""

    def __init__(self) -> None:
        self.ready: dict[tuple[int, ...], _Ready | None] = {}
        self.left = COPY_BYTES

    def __call__(self, modules: Sequence[Any], x: Tensor) -> list[Tensor] | None:
        """The outputs of layers that read x [..., in]; None if they are better computed as they are."""
        key = tuple(map(id, modules))
        if key not in self.ready:
            self.ready[key] = self._make(modules, x)
        ready, flat = self.ready[key], x.reshape(-1, x.shape[-1])
        if ready is None or not ready.takes(flat):
            return None
        return [y.view(*x.shape[:-1], -1) for y in ready(flat)]

    def _make(self, modules: Sequence[Any], x: Tensor) -> _Ready | None:
        layers = [adapted(module) for module in modules]
        known = [layer for layer in layers if layer is not None]
        if len(known) < len(layers):
            return None
        size = sum(layer.weight.numel() * layer.weight.element_size() for layer in known)
        kind = _kind(known, x, fits=size <= self.left)
        if kind is not None and kind is not _Apart:
            self.left -= size
        return None if kind is None else kind(known, x)


def _kind(layers: Sequence[Adapted], x: Tensor, fits: bool) -> type[_Merged | _Beside | _Apart] | None:
    """The form of a group of layers; None if they are better used as they are. ``fits``: there is room for copies."""
    weights, alone = layers[0].weight.dtype, len(layers) == 1 and layers[0].a is None
    if x.dtype == torch.float32 == weights:
        return _Merged if fits and not alone else None  # alone it would be a plain copy
    if x.device.type == "cpu":
        return _Packed if fits and weights == torch.bfloat16 and packs_weights() else None
    if x.dtype != weights or alone:
        return None
    return _Beside if fits else _Apart


class _Ready:
    """Layers combined into one matrix."""

    def __init__(self, layers: Sequence[Adapted]) -> None:
        self.widths = [len(layer.weight) for layer in layers]
        self.bias: Tensor | None = None
        if any(layer.bias is not None for layer in layers):
            parts = [
                layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias for layer in layers
            ]
            self.bias = torch.cat(parts)

    def takes(self, x: Tensor) -> bool:  # noqa: ARG002 see _Packed
        """Whether this is the fastest way for this many rows."""
        return True

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError


class _Merged(_Ready):
    """x (W + s B A)ᵀ in float32, where merging loses nothing that matters."""

    def __init__(self, layers: Sequence[Adapted], _: Tensor) -> None:
        super().__init__(layers)
        self.weight = torch.cat([layer.weight for layer in layers])
        for part, layer in zip(self.weight.split(self.widths), layers, strict=True):
            if layer.a is not None and layer.b is not None:
                part.addmm_(layer.b, layer.a, alpha=layer.scale)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        return functional.linear(x, self.weight, self.bias).split(self.widths, dim=-1)


class _Beside(_Ready):
    """[x, x Aᵀ] [W, s B]ᵀ in the precision of the weights: one product, besides the small one with A.

    Not W + s B A: an adapter's small change would be lost in the rounding of W.
    """

    def __init__(self, layers: Sequence[Adapted], x: Tensor) -> None:
        super().__init__(layers)
        low = [layer.a for layer in layers if layer.a is not None]
        self.a = torch.cat(low).to(x.dtype) if low else None
        self.weight = torch.cat([layer.weight for layer in layers]) if len(layers) > 1 else layers[0].weight
        if self.a is not None:
            none = self.weight.new_zeros
            parts = [layer.b * layer.scale if layer.b is not None else none(len(layer.weight), 0) for layer in layers]
            self.weight = torch.cat([self.weight, torch.block_diag(*parts).to(self.weight.dtype)], dim=1)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.a is not None:
            x = torch.cat([x, x @ self.a.T], dim=1)
        return functional.linear(x, self.weight, self.bias).split(self.widths, dim=-1)


class _Packed(_Beside):
    """The same in bfloat16 on a CPU, with the matrix stored in the order in which it is read."""

    def __init__(self, layers: Sequence[Adapted], x: Tensor) -> None:
        super().__init__(layers, x)
        self.weight = prepacked(self.weight, x.numel() // x.shape[-1])

    def takes(self, x: Tensor) -> bool:
        """Only for few rows: see ``product_dtype``."""
        return len(x) < WIDE_ROWS

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.a is not None:
            x = torch.cat([x, x @ self.a.T], dim=1)
        y = packed_linear(x.to(torch.bfloat16), self.weight, self.bias)
        return y.to(x.dtype).split(self.widths, dim=-1)


class _Apart(_Ready):
    """x Wᵀ + (x Aᵀ) (s B)ᵀ with the weights as they are, where there is no room for copies: only A and s B are copied,
    in the precision of the weights, instead of being converted for every token.
    """

    def __init__(self, layers: Sequence[Adapted], x: Tensor) -> None:
        super().__init__(layers)
        self.layers = layers
        low = [layer.a for layer in layers if layer.a is not None]
        self.a = torch.cat(low).to(x.dtype) if low else None
        self.ranks = [0 if layer.a is None else len(layer.a) for layer in layers]
        self.b = [None if layer.b is None else (layer.b * layer.scale).to(x.dtype) for layer in layers]

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs = [functional.linear(x, layer.weight, layer.bias) for layer in self.layers]
        if self.a is not None:
            for y, part, b in zip(outputs, (x @ self.a.T).split(self.ranks, dim=1), self.b, strict=True):
                if b is not None:
                    y.addmm_(part, b.T)
        return tuple(outputs)


def prepacked(weight: Tensor, rows: int) -> Tensor:
    """A weight in oneDNN's own layout for products with ``rows`` rows; otherwise every product reorders it again."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return packed


def packed_linear(x: Tensor, packed: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + bias for a packed W."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return y


@functools.cache
def packs_weights() -> bool:
    """Whether prepacking works here. The operations are private to torch, so a forked process tries them first."""
    x, weight = (torch.linspace(-1, 1, 64 * n).reshape(n, 64).bfloat16() for n in (2, 96))

    def trial() -> bool:
        return torch.allclose(packed_linear(x, prepacked(weight, 2)), x @ weight.T, rtol=0.02, atol=0.1)

    there = torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
    return there and hasattr(os, "fork") and survives(trial) and trial()
