"""Linear layers with their LoRA adapters as one operation: small products added in place, nothing stored twice.

PEFT adds an adapter in separate operations that each write a tensor as large as the output, and in bfloat16 it first
casts the whole input to float32. This computes the same sum with the products alone; layers that read the same input,
such as queries, keys and values, share the low-rank products and one gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft.tuners.lora import Linear as LoraLayer
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from ppolm.kernels.products import converted, current_mode, finite, product_dtype
from ppolm.kernels.replaced_forward import find, install, undo
from ppolm.kernels.whole_weights import shard_of, whole_copy

SAME = 1e-4
"""Largest difference from PEFT, relative to the size of what is compared, that rounding can explain."""


@dataclass(frozen=True)
class Adapted:
    """What a linear layer currently computes: y = x Wᵀ + bias + s (x Aᵀ) Bᵀ. W and bias are frozen."""

    weight: Tensor  # [out, in]
    bias: Tensor | None  # [out]
    a: Tensor | None = None  # [r, in]
    b: Tensor | None = None  # [out, r]
    scale: float = 0.0


def fuse_adapters(model: nn.Module, adapter: str) -> str | None:
    """Let every plain LoRA layer of a model use the code below; returns the reason if the results are not PEFT's.

    One layer of each kind is compared, using ``adapter``. Layers of other kinds keep PEFT's own code.
    """
    found: list[Any] = [module for module in model.modules() if type(module) is LoraLayer]
    layers = [layer for layer in found if is_product(layer.base_layer)]
    kinds: dict[tuple[type, bool], Any] = {}
    for layer in sorted(layers, key=lambda one: one.base_layer.weight.numel()):  # the smallest is compared fastest
        if adapter in layer.lora_A:
            kinds.setdefault((type(layer.base_layer), layer.base_layer.bias is None), layer)
    for layer in kinds.values():
        off = _disagreement(layer, adapter)
        if not off <= SAME:
            undo(layers)
            kind = type(layer.base_layer).__name__
            return f"numbers of a {kind} with an adapter are off by {off:.1g} of their size, {SAME:g} is rounding"
    for layer in layers:
        install(layer, FusedLoraForward(layer))
    return None


def is_product(layer: Any) -> bool:
    """Whether a layer computes x Wᵀ + bias and nothing else; a subclass of ``nn.Linear`` may do more."""
    if isinstance(layer, Conv1D) or type(layer) is nn.Linear:
        return True
    if not isinstance(layer, nn.Linear) or layer.weight.is_meta:
        return isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward
    layer = whole_copy(layer) if shard_of(layer.weight) is not layer.weight else layer
    x = torch.linspace(-1, 1, layer.in_features, device=layer.weight.device, dtype=layer.weight.dtype)[None, None]
    shapes = {name: value.to("meta") for name, value in layer.named_parameters()}
    with torch.no_grad():
        try:  # on shapes alone, which cannot run out of memory: a layer that does not accept a row is something else
            torch.func.functional_call(layer, shapes, (x.to("meta"),))
        except (RuntimeError, ValueError, TypeError):
            return False
        y = layer(x)
        return isinstance(y, Tensor) and torch.equal(y, functional.linear(x, layer.weight, layer.bias))


def _disagreement(layer: LoraLayer, adapter: str) -> float:
    """Largest relative difference of outputs and gradients from PEFT's, in float32 with an adapter that is not zero."""
    layer = whole_copy(layer).float().cpu()
    undo([layer])
    layer.enable_adapters(True)
    layer.set_adapter(adapter)
    ours = FusedLoraForward(layer)
    if ours.adapted() is None:
        return 0.0  # then PEFT's own code is used
    random = torch.Generator().manual_seed(0)
    a, b = layer.lora_A[adapter].weight, layer.lora_B[adapter].weight
    for part in (a, b):
        part.data.normal_(std=0.1, generator=random)
    x = torch.randn(2, 5, a.shape[1], generator=random, requires_grad=True)
    grad = torch.randn(2, 5, len(b), generator=random)
    found = []
    with torch.enable_grad():
        for forward in (ours, lambda given: type(layer).forward(layer, given)):
            y = forward(x)
            found.append((y.detach(), *torch.autograd.grad(y, (x, a, b), grad)))
    return max(float((one - plain).norm() / plain.norm()) for one, plain in zip(*found, strict=True))


class FusedLoraForward:
    """Replaces PEFT's ``Linear.forward``."""

    def __init__(self, layer: LoraLayer) -> None:
        self.layer = layer
        self.base = layer.base_layer
        self.transposed = isinstance(self.base, Conv1D)

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        adapted = self.adapted()
        plain = not self.layer.lora_variant and not self.base.weight.requires_grad
        if adapted is None and plain and self.base.weight.dtype == torch.float16 != x.dtype:
            return self._in_parts(x)
        if adapted is None:  # PEFT's own code expects an input in the precision of the weights
            given = x.to(self.base.weight.dtype)
            return type(self.layer).forward(self.layer, given, *args, **kwargs).to(x.dtype)
        return linears(x, [adapted])[0]

    def _in_parts(self, x: Tensor) -> Tensor:
        """What PEFT computes with dropout, but in the precision of x: float16 would lose small gradients."""
        layer, weight = self.layer, self.base.weight.T if self.transposed else self.base.weight
        (y,) = linears(x, [Adapted(weight, self.base.bias)])
        for name in layer.active_adapters:
            if name in layer.lora_A and not layer.disable_adapters:
                low = layer.lora_A[name](layer.lora_dropout[name](x))
                y = y + layer.lora_B[name](low) * layer.scaling[name]
        return y

    def adapted(self) -> Adapted | None:
        """What the layer computes with the active adapter; None if that is more than s B A."""
        layer = self.layer
        weight = self.base.weight.T if self.transposed else self.base.weight
        names = [] if layer.disable_adapters else [name for name in layer.active_adapters if name in layer.lora_A]
        if self.base.weight.requires_grad or len(names) > 1 or not all(map(self._plain, names)):
            return None
        if not names:
            return Adapted(weight, self.base.bias)
        (name,) = names
        return Adapted(
            weight, self.base.bias, layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name]
        )

    def _plain(self, name: str) -> bool:
        """Whether the adapter is s B A and nothing more: no active dropout, no bias of its own, no variant."""
        dropout = self.layer.lora_dropout[name]
        drops = self.layer.training and isinstance(dropout, nn.Dropout) and dropout.p > 0
        return not drops and self.layer.lora_B[name].bias is None and name not in self.layer.lora_variant


def apply_prepared(modules: Sequence[Any], x: Tensor) -> list[Tensor] | None:
    """The outputs of linear layers that were prepared for sampling; None if they were not."""
    prepared = current_mode().prepared
    return None if prepared is None else prepared(modules, x)


def apply_layers(modules: Sequence[Any], x: Tensor) -> list[Tensor]:
    """The outputs of linear layers that read the same input."""
    answer = apply_prepared(modules, x)
    if answer is not None:
        return answer
    found = [adapted(module) for module in modules]
    known = [one for one in found if one is not None]
    if len(known) == len(found):
        return linears(x, known)
    own = [isinstance(find(module), FusedLoraForward) for module in modules]  # those convert x themselves
    return [
        module(x) if converts else module(x.to(module.weight.dtype)).to(x.dtype)
        for module, converts in zip(modules, own, strict=True)
    ]


def adapted(module: Any) -> Adapted | None:
    """What a linear layer currently computes; None if that is more than a frozen product and an adapter."""
    if type(module) is nn.Linear and not module.weight.requires_grad:
        return Adapted(module.weight, module.bias)
    forward = find(module)
    return forward.adapted() if isinstance(forward, FusedLoraForward) else None


def linears(x: Tensor, layers: Sequence[Adapted]) -> list[Tensor]:
    """The outputs of layers that read x, in x's precision whatever that of the weights; A and B may be trainable."""
    flat = x.reshape(-1, x.shape[-1])
    adapters = [part for layer in layers for part in (layer.a, layer.b)]
    trains = x.requires_grad or any(part is not None and part.requires_grad for part in adapters)
    if torch.is_grad_enabled() and trains:
        outputs = _Linears.apply(flat, layers, *adapters)
    else:
        outputs = _products(flat, layers, *_factors(layers, product_dtype(flat, layers[0].weight)))[0]
    return [y.view(*x.shape[:-1], -1) for y in outputs]


def _factors(layers: Sequence[Adapted], dtype: torch.dtype) -> tuple[Tensor | None, list[Tensor | None]]:
    """A of all layers below each other [Σ r, in], and B of each, in the precision of the products."""
    found = [layer.a for layer in layers if layer.a is not None]
    stacked = None if not found else (found[0] if len(found) == 1 else torch.cat(found)).to(dtype)
    return stacked, [None if layer.b is None else layer.b.to(dtype) for layer in layers]


def _products(
    x: Tensor, layers: Sequence[Adapted], a: Tensor | None, b: Sequence[Tensor | None]
) -> tuple[tuple[Tensor, ...], list[Tensor | None]]:
    """The outputs [n, out] for an input [n, in], and x Aᵀ of every layer that has an adapter, given their factors."""
    dtype, given = product_dtype(x, layers[0].weight), x.dtype
    x = finite(x, dtype).to(dtype)
    low = _low(x, layers, a)
    outputs = []
    for layer, part, factor in zip(layers, low, b, strict=True):
        bias = None if layer.bias is None else layer.bias.to(dtype)
        y = functional.linear(x, converted(layer.weight, dtype), bias)
        if part is not None and factor is not None:
            y.addmm_(part, factor.T, alpha=layer.scale)
        outputs.append(finite(y, dtype).to(given))
    return tuple(outputs), low


def _low(x: Tensor, layers: Sequence[Adapted], a: Tensor | None) -> list[Tensor | None]:
    """x Aᵀ of every layer, in a single product."""
    if a is None:
        return [None] * len(layers)
    parts = iter((x @ a.T).split([len(layer.a) for layer in layers if layer.a is not None], dim=1))
    return [None if layer.a is None else next(parts) for layer in layers]


class _Linears(torch.autograd.Function):
    """dx = Σ dy W + s (dy B) A,  dA = s (dy B)ᵀ x,  dB = s dyᵀ (x Aᵀ)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: Sequence[Adapted], *_: Tensor | None) -> tuple[Tensor, ...]:
        ctx.layers, ctx.given, ctx.dtype = layers, x.dtype, product_dtype(x, layers[0].weight)
        a, b = _factors(layers, ctx.dtype)
        outputs, low = _products(x, layers, a, b)
        # The gradient of A needs the input, which is kept in the precision of the weights.
        kept = layers[0].weight.dtype
        ctx.save_for_backward(finite(x, kept).to(kept), a, *low, *b)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, a, *rest = ctx.saved_tensors
        layers: Sequence[Adapted] = ctx.layers
        low, factors = rest[: len(layers)], rest[len(layers) :]
        given, dtype = ctx.given, ctx.dtype
        answers: list[Tensor | None] = []
        below: list[Tensor] = []
        dx: Tensor | None = None
        for layer, grad, part, b in zip(layers, (one.to(dtype) for one in grads), low, factors, strict=True):
            if ctx.needs_input_grad[0]:
                weight = converted(layer.weight, dtype)
                dx = grad @ weight if dx is None else dx.addmm_(grad, weight)
            if layer.b is None:
                answers += [None, None]
                continue
            below.append((grad @ b).mul_(layer.scale))
            answers += [below[-1], (grad.T @ part).mul_(layer.scale).to(layer.b.dtype)]
        adapters = [layer.a for layer in layers if layer.a is not None]
        if adapters:
            together = below[0] if len(below) == 1 else torch.cat(below, dim=1)
            if dx is not None:
                dx.addmm_(together, a)
            together = (together.T @ x.to(dtype)).to(adapters[0].dtype)
            parts = iter(together.split([len(one) for one in adapters]))
            answers[0::2] = [None if layer.a is None else next(parts).to(layer.a.dtype) for layer in layers]
        needed = ctx.needs_input_grad[2:]
        answers = [answer if asked else None for answer, asked in zip(answers, needed, strict=True)]
        return (None if dx is None else dx.to(given), None, *answers)
