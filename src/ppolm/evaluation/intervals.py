"""Confidence intervals of means over prompts, by the bootstrap (Efron 1979)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A mean and the range in which 95 % of the resampled means lie."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"

    @property
    def excludes_zero(self) -> bool:
        """Whether chance is an unlikely explanation of the mean's sign."""
        return self.low > 0 or self.high < 0


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean of one value per prompt; the prompts are resampled, always with the same random numbers."""
    array = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(0).integers(len(array), size=(RESAMPLES, len(array)))
    low, high = np.quantile(array[draws].mean(axis=1), [0.025, 0.975])
    return Interval(float(array.mean()), float(low), float(high))


def difference_interval(before: Sequence[float], after: Sequence[float]) -> Interval:
    """Mean of after − before, prompt by prompt: what the prompts have in common cancels."""
    return mean_interval(np.subtract(after, before).tolist())
