"""The result of training a model for one step."""

from __future__ import annotations

import math
from collections.abc import Mapping


class MeanLoss(float):
    """The mean loss over the updates of a step, NaN if there were none, with further metrics."""

    metrics: Mapping[str, float]
    """Means over the updates, by name."""

    def __new__(cls, loss: float = math.nan, metrics: Mapping[str, float] | None = None) -> MeanLoss:
        """A loss with its metrics."""
        made = super().__new__(cls, loss)
        made.metrics = dict(metrics or {})
        return made
