"""Confidence intervals of means over prompts: all values of a prompt are one piece of evidence, not several."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
DRAWS_AT_ONCE = 2_000_000
"""Bounds memory; the random numbers, and so the intervals, are the same for any value."""
CONFIDENCE = 0.95

Rows = npt.NDArray[np.intp]
Numbers = Sequence[float] | npt.NDArray[Any]
Clusters = Sequence[int] | npt.NDArray[Any]
"""The prompt of each value, as a number."""


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % confidence interval, which is unbounded if there is only one prompt."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if not math.isfinite(self.low):
            return f"{self.mean:.3f} (of one prompt: no interval)"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"

    @property
    def excludes_zero(self) -> bool:
        """Whether chance is an unlikely explanation of the mean's sign."""
        return self.low > 0 or self.high < 0


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean of one value per prompt."""
    return cluster_interval(values, np.arange(len(values)))


def cluster_interval(values: Numbers, clusters: Clusters, weights: Numbers | None = None) -> Interval:
    """Σ w v / Σ w where several values may belong to one prompt: m ± t · se, with se from the jackknife over prompts.

    A prompt counts as often as it has values: a mean of per-prompt means would weight them wrongly. The jackknife
    leaves out one prompt at a time and covers 95 % even if prompts are few and differ in size; resampling
    (Efron 1979) covers 92 % with twenty prompts.
    """
    sums, counts = _by_cluster(values, clusters, weights)
    mean, error = float(sums.sum() / counts.sum()), _jackknife_error(sums, counts)
    if not math.isfinite(error):
        return Interval(mean, -math.inf, math.inf)
    reach = student_quantile((1 + CONFIDENCE) / 2, len(sums) - 1) * error
    return Interval(mean, mean - reach, mean + reach)


def share_interval(values: Numbers, clusters: Clusters, weights: Numbers | None = None) -> Interval:
    """The same for values from 0 to 1, such as right or wrong: a few equal values do not make the result certain.

    For the bounds, two prompts that are all right and two that are all wrong are added (Agresti & Coull 1998).
    """
    sums, counts = _by_cluster(values, clusters, weights)
    usual = float(counts.mean())
    padded = np.append(sums, [usual, usual, 0.0, 0.0]), np.append(counts, [usual] * 4)
    centre, error = padded[0].sum() / padded[1].sum(), _jackknife_error(*padded)
    reach = student_quantile((1 + CONFIDENCE) / 2, len(padded[0]) - 1) * error
    mean = float(sums.sum() / counts.sum())
    return Interval(mean, max(0.0, min(mean, centre - reach)), min(1.0, max(mean, centre + reach)))


def mean_error(values: Numbers, clusters: Clusters) -> float:
    """Standard error of a mean when several values may belong to one prompt; infinite for a single prompt."""
    return _jackknife_error(*_by_cluster(values, clusters, None))


def _by_cluster(
    values: Numbers, clusters: Clusters, weights: Numbers | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Σ w v and Σ w of each prompt whose weight is not 0."""
    array = np.asarray(values, dtype=np.float64)
    weight = np.ones(len(array)) if weights is None else np.asarray(weights, dtype=np.float64)
    _, group = np.unique(np.asarray(clusters), return_inverse=True)
    sums, counts = np.bincount(group, weight * array), np.bincount(group, weight)
    return sums[counts > 0], counts[counts > 0]


def _jackknife_error(sums: npt.NDArray[Any], counts: npt.NDArray[Any]) -> float:
    """√((G − 1)/G · Σ (m₋g − m̄)²) over the means m₋g without prompt g."""
    number = len(sums)
    if number < 2:
        return math.inf
    without = (sums.sum() - sums) / (counts.sum() - counts)
    return float(math.sqrt((number - 1) / number * ((without - without.mean()) ** 2).sum()))


def student_quantile(share: float, freedom: int) -> float:
    """Quantile of Student's t, by its expansion around the normal one (Abramowitz & Stegun 26.7.5)."""
    z, v = NormalDist().inv_cdf(share), freedom
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / v**power for power, term in enumerate(terms, 1))


def statistic_interval(statistic: Callable[[Rows], float], clusters: Clusters) -> Interval:
    """Any statistic of the rows with the given indices, by the bootstrap: the rows of a prompt are resampled together.

    For statistics that are not means, such as a rank correlation. The random numbers are always the same.
    """
    _, group = np.unique(np.asarray(clusters), return_inverse=True)
    members = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
    values = [
        statistic(np.concatenate([members[j] for j in draw])) for draws in _resamples(len(members)) for draw in draws
    ]
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(statistic(np.arange(len(group))), float(low), float(high))


def _resamples(count: int) -> Iterator[Rows]:
    """RESAMPLES draws [k, count] of ``count`` prompts with replacement, always the same, in chunks."""
    random, at_once = np.random.default_rng(0), max(1, DRAWS_AT_ONCE // count)
    for done in range(0, RESAMPLES, at_once):
        yield random.integers(count, size=(min(at_once, RESAMPLES - done), count))
