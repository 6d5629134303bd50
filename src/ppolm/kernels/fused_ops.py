"""The operations between the matrix products of a block, in as few passes over memory as possible.

Small models spend as much time on these as on the products. Each is the library's own formula; sums are in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import silu

from ppolm.kernels.products import finite


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """y = w x / sqrt(mean(x²) + eps), over the last dimension. CUDA has one kernel for it, a CPU none."""
    if not x.is_cpu and x.dtype == weight.dtype:
        return functional.rms_norm(x, weight.shape, weight, eps)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _RMSNorm.apply(x, weight, eps)
    return _norm(x, weight, eps)[0]


def _norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm, and 1 / sqrt(mean(x²) + eps)."""
    wide = x.float()
    root = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    # All in float32, because operations on mixed precisions are slow.
    return torch.mul(wide, root).mul_(weight.float()).to(x.dtype), root


class _RMSNorm(torch.autograd.Function):
    """dx = r g − r³ mean(g x) x,  dw = Σ r x dy,  with g = w dy and r = 1 / sqrt(mean(x²) + eps)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        y, root = _norm(x, weight, eps)
        ctx.save_for_backward(finite(x, weight.dtype).to(weight.dtype), weight, root)
        ctx.given = x.dtype
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, root = ctx.saved_tensors
        wide, grad = x.float(), grad.float()
        dx = dw = None
        if ctx.needs_input_grad[0]:
            g = grad * weight.float()
            along = torch.linalg.vecdot(g, wide).unsqueeze(-1).mul_(root.pow(3)).div_(-x.shape[-1])
            dx = g.mul_(root).addcmul_(wide, along).to(ctx.given)
        if ctx.needs_input_grad[1]:
            dw = (grad * wide).mul_(root).flatten(0, -2).sum(0).to(weight.dtype)
        return dx, dw, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions of x [B, T, H, d]: (a, b) → (a cos − b sin, b cos + a sin), a and b the halves of d."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _Rotate.apply(x, cos, sin)
    return _turn(x, cos, sin, 1)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, direction: int) -> Tensor:
    half = x.shape[-1] // 2
    y = x * cos
    y[..., :half].addcmul_(x[..., half:], sin[..., :half], value=-direction)
    y[..., half:].addcmul_(x[..., :half], sin[..., half:], value=direction)
    return y


class _Rotate(torch.autograd.Function):
    """The gradient is rotated back by the same angles, which are equal for both halves."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _turn(grad, cos, sin, -1), None, None


def log_sum_exp(x: Tensor) -> Tensor:
    """log Σ exp(x) over the last dimension [n]. torch's own is single-threaded and not vectorised."""
    top = x.amax(-1, keepdim=True)
    return torch.sub(x, top).exp_().sum(-1).log_().add_(top.squeeze(-1))


def gated(gate: Tensor, up: Tensor, keep: torch.dtype) -> Tensor:
    """y = silu(gate) · up. silu(gate) is not kept for the backward pass: recomputing it is faster than reading it.

    ``keep`` is the precision in which gate and up are kept.
    """
    if torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad):
        return _Gated.apply(gate, up, keep)
    return silu(gate).mul_(up)


class _Gated(torch.autograd.Function):
    """dup = silu(gate) dy,  dgate = silu'(gate) up dy."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, keep: torch.dtype) -> Tensor:
        ctx.save_for_backward(*(finite(one, keep).to(keep) for one in (gate, up)))
        return silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gate, up = (kept.to(grad.dtype) for kept in ctx.saved_tensors)
        return torch.ops.aten.silu_backward(grad * up, gate), silu(gate).mul_(grad), None
