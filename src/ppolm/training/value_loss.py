"""The value loss, and how good the value model is."""

import torch
from torch import Tensor


def value_loss(value: Tensor, target: Tensor, value_old: Tensor, clip: float | None = None) -> Tensor:
    """(V − target)² per token [n]; with ``clip`` ½ max((V − target)², (clip(V, V_old ± clip) − target)²)."""
    squared = (value - target).square()
    if clip is None:
        return squared
    clipped = value_old + (value - value_old).clamp(-clip, clip)
    return 0.5 * torch.maximum(squared, (clipped - target).square())


def explained_variance(value: Tensor, target: Tensor) -> float:
    """1 − Var(target − V) / Var(target): 1 is perfect, 0 is as good as a constant, less is worse. Equal targets: 0."""
    variance = target.double().var(correction=0)
    if variance == 0:
        return 0.0
    return float(1 - (target.double() - value.double()).var(correction=0) / variance)
