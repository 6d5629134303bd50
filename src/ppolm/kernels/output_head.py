"""From hidden states to logits, as a model's own head computes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

AGREES = {torch.float32: 1e-5}
"""Relative difference above which two heads count as different: far above float32 rounding."""
ROUGHLY = 0.02
"""The same for weights of lower precision, with at least 8 significant bits."""


@dataclass(frozen=True)
class OutputHead:
    """logits = cap · tanh(scale · W h / cap), or scale · W h if there is no cap."""

    scale: float = 1.0
    softcap: float | None = None

    def finish(self, product: Tensor) -> Tensor:
        """Logits from the product W h."""
        scaled = product if self.scale == 1.0 else product * self.scale
        return scaled if self.softcap is None else torch.tanh(scaled / self.softcap) * self.softcap


def find_head(product: Tensor, logits: Tensor, config: Any, dtype: torch.dtype) -> OutputHead | None:
    """The head that turns the products W h [n, V] into these logits [n, V]; ``dtype`` is the precision of the weights.

    Models differ in a factor, whose name varies between configurations, and in a soft cap. None if these do not
    explain the logits.
    """
    if product.shape != logits.shape:
        return None
    limit = AGREES.get(dtype, ROUGHLY)
    caps = [value for name, value in vars(config).items() if re.search("logit.*cap", name) and value]
    for softcap in (None, *caps):
        inner = logits if softcap is None else torch.atanh((logits / softcap).clamp(-1 + 1e-6, 1 - 1e-6)) * softcap
        scale = float((inner * product).sum() / product.square().sum())
        head = OutputHead(_as_configured(scale, config, limit), softcap)
        if float((head.finish(product) - logits).norm() / logits.norm()) < limit:
            return head
    return None


def _as_configured(scale: float, config: Any, limit: float) -> float:
    """A measured factor, replaced by the number in the configuration, or its inverse, that it equals up to rounding."""
    numbers = [1.0, *(float(x) for x in vars(config).values() if isinstance(x, (int, float)) and x)]
    named = [x for number in numbers for x in (number, 1 / number)]
    nearest = min(named, key=lambda x: abs(scale - x))
    return nearest if abs(scale - nearest) <= limit * abs(nearest) else scale
