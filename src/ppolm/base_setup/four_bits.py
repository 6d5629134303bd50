"""A base whose matrices are stored in 4 bits (NF4), and why our own kernels leave such matrices alone."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import nn
from transformers import BitsAndBytesConfig, PreTrainedModel

from ppolm.errors import ModelError
from ppolm.kernels.rounding import ROUGH

PACKED = "the base's weights are packed, and only its own layers can read them"
"""Why a fast path that reads weights is not used."""


def four_bits(dtype: torch.dtype) -> BitsAndBytesConfig:
    """How transformers packs the matrices of a model while it loads them; products are computed in ``dtype``.

    NF4, and the scales of its blocks of 64 weights are packed, too (Dettmers et al. 2023). The output matrix is not
    packed: its errors would be errors of the log-probabilities.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ModelError(
            "base_bits is 4, which needs bitsandbytes, and that is not installed. Install it with "
            "pip install 'ppolm[bits]', or leave base_bits out."
        )
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
    )


def make_differentiable(model: PreTrainedModel, name: str) -> None:
    """Let packed layers keep the layout that gradients pass through, and check that they do.

    On CPUs with bfloat16 instructions bitsandbytes repacks a layer at its first pass without gradients, in place, for a
    product that has no backward pass: torch warns, and the layers below would silently get a wrong gradient.
    """
    layers: list[Any] = [module for module in model.modules() if is_packed(module) and isinstance(module, nn.Linear)]
    for layer in layers:
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
    off = gradient_error(layers[0]) if layers else 0.0
    if not off <= ROUGH:
        raise ModelError(
            f"Model {name} in 4 bits has wrong gradients here (off by {off:.1g} of their size). Leave base_bits out, "
            "or install another version of bitsandbytes."
        )


def gradient_error(layer: nn.Linear) -> float:
    """How far the gradient of a layer's product is from that of its matrix, relative to its size."""
    given: dict[str, Any] = {
        "device": layer.weight.device,
        "dtype": getattr(layer, "compute_dtype", None) or torch.float32,
    }
    with torch.no_grad():
        matrix = layer(torch.eye(layer.in_features, **given)).float()  # [in, out], with the bias in every row
        matrix -= layer(torch.zeros(1, layer.in_features, **given)).float()
    with torch.enable_grad():
        x = torch.zeros(1, layer.in_features, **given, requires_grad=True)
        factors = torch.linspace(-1, 1, layer.out_features).to(x)[None]
        (gradient,) = torch.autograd.grad((layer(x) * factors).sum(), x, materialize_grads=True)
    expected = factors.float() @ matrix.T
    return float((gradient.float() - expected).norm() / expected.norm())


def has_packed_weights(model: PreTrainedModel) -> bool:
    """Whether some weights of a model are not plain matrices of numbers, because we or its authors packed them."""
    return bool(getattr(model, "is_quantized", False)) or any(map(is_packed, model.modules()))


def is_packed(layer: nn.Module) -> bool:
    """Whether a layer's weight is packed by bitsandbytes, or not even made of floating-point numbers."""
    weight: Any = getattr(layer, "weight", None)
    if not isinstance(weight, torch.Tensor):
        return False
    return hasattr(weight, "quant_state") or not weight.is_floating_point()
