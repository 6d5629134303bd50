"""Counting kernels on the emulated device as CUDA would run them: attention and RMS norm as one kernel each.

The emulated device has only the plain formulas, which torch spells out for devices without fused kernels. Here such a
call still computes by its formula, but counts as one kernel in the forward and one in the backward pass. What torch
does to a mask before the kernel is counted, too: a mask of booleans is converted at every call, and one whose width is
not a multiple of 16 is copied (``preprocess_mask`` of torch's attention).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils import _foreach_utils

from tests.emulated_device import EmulatedTensor, kernels

ALIGNED = 16
"""Width that a mask must be a multiple of."""


class _OneKernel(torch.autograd.Function):
    """A function of tensors whose operations are not counted, only their number of kernels: one each way."""

    @staticmethod
    def forward(ctx: Any, name: str, function: Callable[..., Tensor], *given: Tensor | None) -> Tensor:
        inputs = [None if one is None else one.detach().requires_grad_(one.requires_grad) for one in given]
        before = kernels.copy()
        with torch.set_grad_enabled(any(ctx.needs_input_grad)):
            output = function(*inputs)
        _replace_counts(before, name)
        ctx.name, ctx.inputs, ctx.output = name, inputs, output
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        asked = [one for one in ctx.inputs if one is not None and one.requires_grad]
        before = kernels.copy()
        found = iter(torch.autograd.grad(ctx.output, asked, grads[0]))
        _replace_counts(before, f"{ctx.name}_backward")
        return (None, None, *(next(found) if one is not None and one.requires_grad else None for one in ctx.inputs))


def _replace_counts(before: Mapping[str, int], name: str) -> None:
    kernels.clear()
    kernels.update(before)
    kernels[name] += 1


class _Fused(TorchFunctionMode):
    """Lets calls of the functions that CUDA has a kernel for count as one."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not (args and isinstance(args[0], EmulatedTensor)):
            return function(*args, **kwargs)
        if function is rms_norm:
            x, shape, weight, eps = (*args, *kwargs.values())
            return _OneKernel.apply("rms_norm", lambda x, w: rms_norm(x, shape, w, eps), x, weight)
        if function is scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        return function(*args, **kwargs)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, **options: Any
) -> Any:
    def attend(*given: Any) -> Tensor:
        query, key, value, mask = given
        return scaled_dot_product_attention(query, key, value, mask, dropout_p, **options)

    if attn_mask is None:
        return _OneKernel.apply("attention", attend, query, key, value, None)
    if options.get("enable_gqa"):
        return attend(query, key, value, attn_mask)  # with a mask there is no kernel for it: the plain formula
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, torch.full((), -torch.inf, dtype=query.dtype, device=query.device))
    if attn_mask.shape[-1] % ALIGNED:
        kernels["pad_mask"] += 1
    return _OneKernel.apply("attention", attend, query, key, value, attn_mask)


@contextmanager
def as_on_cuda() -> Iterator[None]:
    """Count kernels as on CUDA; optimisers treat lists of parameters at once, as they do there."""
    with ExitStack() as stack:
        supported = [*_foreach_utils._foreach_supported_types, EmulatedTensor]
        stack.enter_context(patch.object(_foreach_utils, "_foreach_supported_types", supported))
        stack.enter_context(patch("torch.optim.optimizer._foreach_supported_types", supported))
        slope = torch.ops.aten.silu_backward
        stack.enter_context(
            patch.object(
                torch.ops.aten, "silu_backward", lambda *given: _OneKernel.apply("silu_backward", slope, *given)
            )
        )
        stack.enter_context(_Fused())
        yield
