"""The policy's LoRA adapter on an MLX model: attached once, copied whenever its weights have changed."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import torch
from mlx import nn
from mlx.utils import tree_unflatten
from torch import Tensor

from ppolm.engines.lora_factors import LoraFactors
from ppolm.errors import ModelError


class LoraLinear(nn.Module):
    """A frozen layer of the base plus the product of two small matrices: x Wᵀ + (x A) B."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.a = self.b = mx.zeros((0, 0))  # set by ``MLXAdapter.refresh``

    def __call__(self, x: mx.array) -> mx.array:
        return self.linear(x) + ((x @ self.a) @ self.b).astype(x.dtype)


class MLXAdapter:
    """The adapter's layers in an MLX model, and what was last copied into them."""

    def __init__(self, model: nn.Module, factors: Sequence[LoraFactors]) -> None:
        linear = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear)}
        for one in factors:
            _refuse_missing(linear, one)
        self.layers = [(LoraLinear(linear[one.layer]), one) for one in factors]
        model.update_modules(tree_unflatten([(one.layer, layer) for layer, one in self.layers]))
        self._copied: list[tuple[Tensor, Tensor]] = []

    def refresh(self) -> bool:
        """Copy the adapter's weights if they differ from those copied last; whether they did.

        The values are compared, because nothing else cannot lie: torch's version counters miss writes through
        ``.data``. Comparing an adapter takes a small part of the time of sampling a token.
        """
        now = [(one.a.detach(), one.b.detach()) for _, one in self.layers]
        if self._copied and all(map(_same, now, self._copied)):
            return False
        self._copied = [(a.clone(), b.clone()) for a, b in now]
        for (layer, one), (a, b) in zip(self.layers, self._copied, strict=True):
            # MLX multiplies from the right, and the scale is cheapest in the smaller of the two products.
            layer.a, layer.b = _to_mlx(a.T), _to_mlx(one.scale * b.T)
        mx.eval([(layer.a, layer.b) for layer, _ in self.layers])
        return True


def _refuse_missing(linear: dict[str, nn.Linear], one: LoraFactors) -> None:
    """Raise unless MLX has the layer too: with the same name and shape, or it would be another one."""
    shape = (one.b.shape[0], one.a.shape[1])
    if one.layer not in linear or linear[one.layer].weight.shape != shape:
        raise ModelError(
            f"The policy's adapter changes {one.layer}, and engine mlx has no such layer of {shape[1]} to {shape[0]} "
            "numbers (tied output matrices and experts have none). Name other lora_target_modules, or set engine: "
            "local."
        )


def _same(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> bool:
    return torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


def _to_mlx(values: Tensor) -> mx.array:
    """A copy in float32, whatever the precision of the base."""
    return mx.array(values.float().cpu().contiguous().numpy())
