"""A linear layer with its LoRA adapter as one operation: two small products added in place, nothing kept twice.

PEFT adds the adapter by separate operations that each write a tensor as large as the output, and in bfloat16 casts the
whole input to float32 for it. This does the same sum with the products alone.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear as LoraLayer
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D


def fuse(model: nn.Module) -> None:
    """Let every plain LoRA layer of a model use ``lora_linear``; layers of other kinds keep PEFT's own code."""
    for module in model.modules():
        if type(module) is LoraLayer and isinstance(module.base_layer, (nn.Linear, Conv1D)):
            # On the object, so that PEFT still finds, saves and switches its own layers.
            module.forward = _Forward(module)


class _Forward:
    """What stands in for PEFT's ``Linear.forward``."""

    def __init__(self, layer: LoraLayer) -> None:
        self.layer = layer
        self.base = layer.base_layer
        self.transposed = isinstance(self.base, Conv1D)

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        layer, weight, bias = self.layer, self.base.weight, self.base.bias
        if self.transposed:
            weight = weight.T
        names = [] if layer.disable_adapters else [name for name in layer.active_adapters if name in layer.lora_A]
        if not names:
            return linear(x, weight, bias)
        if len(names) > 1 or not self._plain(names[0]):
            return type(layer).forward(layer, x, *args, **kwargs)
        a, b = layer.lora_A[names[0]].weight, layer.lora_B[names[0]].weight
        return lora_linear(x, weight, bias, a, b, layer.scaling[names[0]])

    def _plain(self, name: str) -> bool:
        """Whether the adapter is s B A and nothing more: no dropout now, no bias of its own, no variant."""
        dropout = self.layer.lora_dropout[name]
        drops = self.layer.training and isinstance(dropout, nn.Dropout) and dropout.p > 0
        return not drops and self.layer.lora_B[name].bias is None and name not in self.layer.lora_variant


def lora_linear(x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """y = x Wᵀ + bias + s (x Aᵀ) Bᵀ, in the precision of x; W and bias are frozen, A and B may train in float32."""
    if torch.is_grad_enabled() and (x.requires_grad or a.requires_grad or b.requires_grad):
        return _LoraLinear.apply(x, weight, bias, a, b, scale)
    return _product(x.reshape(-1, x.shape[-1]), weight, bias, a, b, scale)[0].view(*x.shape[:-1], -1)


def _product(
    x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """The output [n, out] for an input [n, in], and x Aᵀ."""
    low = x @ a.to(x.dtype).T
    return linear(x, weight, bias).addmm_(low, b.to(x.dtype).T, alpha=scale), low


class _LoraLinear(torch.autograd.Function):
    """dx = dy W + s (dy B) A,  dA = s (dy B)ᵀ x,  dB = s dyᵀ (x Aᵀ)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        y, low = _product(flat, weight, bias, a, b, scale)
        ctx.save_for_backward(flat, weight, a, b, low)
        ctx.scale = scale
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, a, b, low = ctx.saved_tensors
        shape, grad = grad.shape, grad.reshape(-1, grad.shape[-1])
        below = (grad @ b.to(grad.dtype)).mul_(ctx.scale)
        dx = da = db = None
        if ctx.needs_input_grad[0]:
            dx = (grad @ weight).addmm_(below, a.to(grad.dtype)).view(*shape[:-1], -1)
        if ctx.needs_input_grad[3]:
            da = (below.T @ x).to(a.dtype)
        if ctx.needs_input_grad[4]:
            db = (grad.T @ low).mul_(ctx.scale).to(b.dtype)
        return dx, None, None, da, db, None
