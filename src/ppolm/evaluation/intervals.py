"""Confidence intervals of means over prompts, by the bootstrap (Efron 1979)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
DRAWS_AT_ONCE = 2_000_000
"""Bounds memory; the random numbers, and so the intervals, are the same for any value."""

Rows = npt.NDArray[np.intp]
Numbers = Sequence[float] | npt.NDArray[Any]
Clusters = Sequence[int] | npt.NDArray[Any]
"""The prompt of each value, as a number."""


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
    random, at_once = np.random.default_rng(0), max(1, DRAWS_AT_ONCE // len(array))
    counts = [min(at_once, RESAMPLES - done) for done in range(0, RESAMPLES, at_once)]
    means = [array[random.integers(len(array), size=(count, len(array)))].mean(axis=1) for count in counts]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Interval(float(array.mean()), float(low), float(high))


def difference_interval(before: Sequence[float], after: Sequence[float]) -> Interval:
    """Mean of after − before, prompt by prompt: what the prompts have in common cancels."""
    return mean_interval(np.subtract(after, before).tolist())


def cluster_interval(values: Numbers, clusters: Clusters, weights: Numbers | None = None) -> Interval:
    """Σ w v / Σ w where several values may belong to one prompt; the values of a prompt are resampled together.

    A prompt with many values counts for as many: the mean of its mean would weigh them wrongly.
    """
    array = np.asarray(values, dtype=np.float64)
    weight = np.ones(len(array)) if weights is None else np.asarray(weights, dtype=np.float64)
    _, group = np.unique(np.asarray(clusters), return_inverse=True)
    sums, counts = np.bincount(group, weight * array), np.bincount(group, weight)
    random, means = np.random.default_rng(0), np.empty(RESAMPLES)
    mean = float(sums.sum() / counts.sum())
    for i in range(RESAMPLES):  # one at a time: memory does not grow with the number of resamples
        draw = random.integers(len(sums), size=len(sums))
        total = counts[draw].sum()
        means[i] = sums[draw].sum() / total if total else mean
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(mean, float(low), float(high))


def statistic_interval(statistic: Callable[[Rows], float], clusters: Clusters) -> Interval:
    """Any statistic of the rows with the given indices; the rows of a prompt are resampled together."""
    _, group = np.unique(np.asarray(clusters), return_inverse=True)
    members = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
    random, values = np.random.default_rng(0), np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        draw = random.integers(len(members), size=len(members))
        values[i] = statistic(np.concatenate([members[j] for j in draw]))
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(statistic(np.arange(len(group))), float(low), float(high))
