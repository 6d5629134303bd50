"""How far apart two results may be before the difference is more than rounding."""

from __future__ import annotations

import torch
from torch import Tensor

EXACT, ROUGH = 1e-4, 0.05
"""Largest disagreement that rounding can explain. float32 stays far below its limit; bfloat16, with 8 bits per number
and an error in every block, is near a hundredth."""


def disagreement(ours: Tensor, plain: Tensor) -> float:
    """max over tokens of ‖ours − plain‖ / ‖plain − mean‖: the relative error of the worst of n tokens [n, d]."""
    if ours.shape != plain.shape:
        return float("inf")
    size = (plain - plain.mean(-1, keepdim=True)).norm(dim=-1)
    worst = ((ours.to(plain) - plain).norm(dim=-1) / size.clamp(min=1e-12)).max()
    return float("inf") if worst.isnan() else float(worst)


def rounding_limit(dtype: torch.dtype) -> float:
    """The largest disagreement that counts as rounding."""
    return EXACT if dtype == torch.float32 else ROUGH
