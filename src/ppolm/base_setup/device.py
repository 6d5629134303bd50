"""Which device and precision a run uses."""

import os
from collections.abc import Callable
from typing import Literal

import torch

from ppolm.batches.sequences import PASS_COST
from ppolm.errors import ConfigError
from ppolm.kernels.cpu_bfloat16 import multiplies_bfloat16
from ppolm.messages import brief, reason


def resolve_device(name: str) -> torch.device:
    """``auto`` picks CUDA, then Apple MPS, then CPU; anything else must name a device that really works."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        # Read a number back: the device "meta" creates tensors, but they hold nothing.
        torch.zeros(1, device=device).item()
    except Exception as error:  # each kind of device fails in its own way
        said = reason(error, 100)
        raise ConfigError(f"device is {brief(name)}, which cannot be used here ({said}). Use auto or cpu.") from None
    return device


Precision = Literal["float32", "bfloat16"]
DTYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Precisions by their names in settings and checkpoints."""
LARGE = 100_000_000
"""Number of parameters from which bfloat16 may pay off on a CPU: below it, converting costs more than it saves."""


def resolve_dtype(
    name: Precision | Literal["auto"], device: torch.device, parameters: Callable[[], int]
) -> torch.dtype:
    """``auto``: bfloat16 where CUDA supports it; on a CPU for large models, if it is faster or memory is short."""
    if name != "auto":
        return DTYPES[name]
    if device.type == "cuda":
        # Older devices, such as T4 and V100, only emulate bfloat16: slower than float32, and less precise.
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    return torch.bfloat16 if device.type == "cpu" and _pays(parameters()) else torch.float32


def _pays(parameters: int) -> bool:
    """Whether a model of this size should be in bfloat16 on this CPU."""
    if parameters < LARGE:
        return False
    memory = memory_size(torch.device("cpu"))
    short = memory is not None and 4 * parameters > memory / 4
    return short or multiplies_bfloat16()


def product_precision(weights: torch.dtype, device: torch.device) -> torch.dtype:
    """The precision of products of many float32 states with weights of lower precision."""
    narrow = weights == torch.bfloat16 and device.type == "cpu" and multiplies_bfloat16()
    return torch.bfloat16 if narrow else torch.float32


BLOCK_KERNELS = 50
"""Kernels of a block in a pass without gradients (``python -m bench.gpu_counts``)."""
LAUNCH_FLOPS = {"cuda": 5e8, "mps": 1e8}
"""Operations in products that a device could do in the time that it takes to start a kernel: about 5 µs at 100 TFLOPS,
and 10 µs at 10 TFLOPS. Typical figures, not measured here."""
SCORING_TIMES = 4
"""How many times as many tokens as in training a device reads in a pass without gradients, which keeps the tensors of
one block at a time. On a CPU a larger pass would not be faster."""


def pass_cost(device: torch.device, block_weights: int) -> int:
    """Padding tokens that cost as much as one more forward pass: starting kernels takes as long for a small pass.

    On a device this many tokens take 2 · block_weights operations each in the time of starting a block's kernels.
    """
    if device.type == "cpu":
        return PASS_COST
    launches = BLOCK_KERNELS * LAUNCH_FLOPS.get(device.type, LAUNCH_FLOPS["cuda"])
    return max(1, int(launches / (2 * max(block_weights, 1))))


def scoring_tokens(device: torch.device, token_budget: int) -> int:
    """Tokens of a pass without gradients, if one with gradients may have ``token_budget``."""
    return token_budget if device.type == "cpu" else SCORING_TIMES * token_budget


def memory_size(device: torch.device) -> int | None:
    """Bytes of memory that a device has, if known."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not Unix
        return None
