"""Confidence intervals of means over prompts, by the bootstrap (Efron 1979)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def _resamples(count: int) -> Iterator[Rows]:
    """RESAMPLES draws [k, count] of so many prompts with replacement, always the same ones, some at a time."""
    random, at_once = np.random.default_rng(0), max(1, DRAWS_AT_ONCE // count)
    for done in range(0, RESAMPLES, at_once):
        yield random.integers(count, size=(min(at_once, RESAMPLES - done), count))


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean of one value per prompt; the prompts are resampled, always with the same random numbers."""
    array = np.asarray(values, dtype=np.float64)
    means = [array[draws].mean(axis=1) for draws in _resamples(len(array))]
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
    mean = float(sums.sum() / counts.sum())
    means = []
    for draws in _resamples(len(sums)):
        total = counts[draws].sum(axis=1)
        means.append(np.where(total, sums[draws].sum(axis=1) / np.where(total, total, 1), mean))
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Interval(mean, float(low), float(high))


def statistic_interval(statistic: Callable[[Rows], float], clusters: Clusters) -> Interval:
    """Any statistic of the rows with the given indices; the rows of a prompt are resampled together."""
    _, group = np.unique(np.asarray(clusters), return_inverse=True)
    members = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
    values = [
        statistic(np.concatenate([members[j] for j in draw])) for draws in _resamples(len(members)) for draw in draws
    ]
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(statistic(np.arange(len(group))), float(low), float(high))
