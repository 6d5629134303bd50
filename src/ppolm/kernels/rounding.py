"""How far apart two results may be before the difference is more than rounding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

EXACT, ROUGH = 1e-4, 0.05
"""Disagreement that rounding can always explain. float32 stays far below its limit. In bfloat16, with 8 bits per number
and an error in every block, a small model is near a hundredth; a deep one may be far above ROUGH (see Rounding)."""
TIMES_OWN = 2
"""How many times a model's own rounding two correct computations may be apart: each is off by about one."""


def disagreements(ours: Tensor, plain: Tensor) -> Tensor:
    """‖ours − plain‖ / ‖plain − mean‖: the relative error [n] of each of n tokens [n, d]."""
    if ours.shape != plain.shape:
        return torch.full((max(1, len(plain)),), float("inf"))
    size = (plain - plain.mean(-1, keepdim=True)).norm(dim=-1)
    return ((ours.to(plain) - plain).norm(dim=-1) / size.clamp(min=1e-12)).nan_to_num(nan=float("inf"))


def disagreement(ours: Tensor, plain: Tensor) -> float:
    """The relative error of the worst of n tokens [n, d]."""
    return float(disagreements(ours, plain).max())


def rounding_limit(dtype: torch.dtype) -> float:
    """The largest disagreement that counts as rounding, whatever the model."""
    return EXACT if dtype == torch.float32 else ROUGH


def root_mean_square(numbers: Tensor) -> float:
    """√ mean of squares."""
    return float(numbers.square().mean().sqrt())


@dataclass(frozen=True)
class Rounding:
    """The disagreement that rounding explains in one model: root mean square over tokens, and of the worst token."""

    mean: float = EXACT
    worst: float = EXACT

    @classmethod
    def of(cls, rounded: Iterable[Tensor], plain: Tensor) -> Rounding:
        """Of a model in 16 bits, from results [n, d] of the same code whose hidden states were rounded once more.

        How much of a rounding reaches the output depends on the model: in one with 30 blocks and large weights it
        grows tenfold. A limit for all models would refuse that one, or let mistakes in others pass.
        """
        apart = torch.cat([disagreements(one, plain) for one in rounded])
        return cls(max(ROUGH, TIMES_OWN * root_mean_square(apart)), max(ROUGH, TIMES_OWN * float(apart.max())))

    def refusal(self, ours: Tensor, plain: Tensor) -> str | None:
        """How two results [n, d] for the same tokens differ, or None if rounding explains it."""
        apart = disagreements(ours, plain)
        mean, worst = root_mean_square(apart), float(apart.max())
        if mean <= self.mean and worst <= self.worst:
            return None
        if mean > self.mean:
            return f"numbers off by {mean:.1g} of their size, {self.mean:.1g} is rounding"
        return f"numbers of a token off by {worst:.1g} of their size, {self.worst:.1g} is rounding"
