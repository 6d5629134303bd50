"""Accuracy and calibration of scores against human judgements: pure functions of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ppolm.measures.intervals import Clusters, Interval, cluster_interval, share_interval

Array = npt.NDArray[np.float64]

BUCKETS = 5
"""Confidence buckets between 0.5 and 1: fewer hide where a model is overconfident, more leave too few pairs in each."""

BINS = 24
"""Bars of the histogram of scores."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
CALIBRATED_DRAWS = 1000


@dataclass(frozen=True)
class Estimate(Interval):
    """A mean with its interval, and the numbers of rows and prompts it is based on."""

    rows: int
    prompts: int

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Bucket:
    """The pairs on which the model was about equally confident."""

    low: float
    high: float
    count: int
    confidence: float | None
    """Mean of max(p, 1 − p)."""
    accuracy: float | None


@dataclass(frozen=True)
class Calibration:
    """Whether pairs that the model calls 80 % sure are right 80 % of the time."""

    buckets: tuple[Bucket, ...]
    ece: float
    """Σ n_b / n · |accuracy_b − confidence_b|."""
    ece_by_chance: float
    """95 % quantile of the ECE of a perfectly calibrated model with the same confidences: the noise of few pairs."""
    overconfidence: float
    """Mean confidence − accuracy."""


@dataclass(frozen=True)
class Ties:
    """Pairs that people called equal: their scores should be closer together than those of other pairs."""

    count: int
    difference: float
    """Mean |s_first − s_second|."""
    decided_difference: float | None
    """The same for the pairs that people decided."""


@dataclass(frozen=True)
class Spread:
    """The distribution of the scores of some answers."""

    count: int
    mean: float
    std: float
    quantiles: dict[str, float]
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class Distribution:
    """Scores of several kinds of answers in the same bins."""

    edges: tuple[float, ...]
    spreads: dict[str, Spread]


def estimate(values: Array, prompts: Clusters) -> Estimate | None:
    """Mean with an interval clustered by prompt; None without values."""
    return as_estimate(cluster_interval(values, prompts), prompts) if len(values) else None


def share_estimate(values: Array, prompts: Clusters, weights: Array | None = None) -> Estimate | None:
    """The same for values from 0 to 1, such as right or wrong; None also if all weights are 0."""
    if len(values) == 0 or (weights is not None and not weights.sum() > 0):
        return None
    return as_estimate(share_interval(values, prompts, weights), prompts)


def as_estimate(interval: Interval, prompts: Clusters) -> Estimate:
    """An interval with the numbers of rows and prompts it is based on."""
    return Estimate(interval.mean, interval.low, interval.high, len(prompts), len(np.unique(np.asarray(prompts))))


def correct(difference: Array) -> Array:
    """1 where s_chosen > s_rejected [P], 0 where it is lower, ½ for equal scores."""
    return (np.sign(difference) + 1) / 2


def confidence(difference: Array) -> Array:
    """max(p, 1 − p) with p = σ(s_chosen − s_rejected) [P]."""
    return 1 / (1 + np.exp(-np.abs(difference)))


def calibration(difference: Array) -> Calibration:
    """Accuracy by bucket of confidence, and the expected calibration error (Guo et al. 2017)."""
    sure, right = confidence(difference), correct(difference)
    which = np.minimum(((sure - 0.5) * 2 * BUCKETS).astype(int), BUCKETS - 1)
    counts = np.bincount(which, minlength=BUCKETS)

    def means(values: Array) -> Array:
        return np.bincount(which, values, minlength=BUCKETS) / np.maximum(counts, 1)

    sureness, accuracy = means(sure), means(right)

    def error(accuracies: Array) -> float:
        return float((counts * np.abs(accuracies - sureness)).sum() / max(len(sure), 1))

    random = np.random.default_rng(0)
    chance = [error(means((random.random(len(sure)) < sure).astype(np.float64))) for _ in range(CALIBRATED_DRAWS)]
    width = 0.5 / BUCKETS
    return Calibration(
        buckets=tuple(
            Bucket(
                low=round(0.5 + i * width, 9),
                high=round(0.5 + (i + 1) * width, 9),
                count=int(count),
                confidence=float(sureness[i]) if count else None,
                accuracy=float(accuracy[i]) if count else None,
            )
            for i, count in enumerate(counts)
        ),
        ece=error(accuracy),
        ece_by_chance=float(np.quantile(chance, 0.95)),
        overconfidence=float(sure.mean() - right.mean()),
    )


def ties(tied: Array, decided: Array) -> Ties | None:
    """Score differences of the pairs that people called equal, compared with those of the others."""
    if len(tied) == 0:
        return None
    return Ties(len(tied), float(np.abs(tied).mean()), float(np.abs(decided).mean()) if len(decided) else None)


def distribution(scores: Mapping[str, Array]) -> Distribution:
    """Quantiles and histograms of the scores of each kind of answer."""
    together = np.concatenate(list(scores.values()))
    edges = np.histogram_bin_edges(together, BINS)
    return Distribution(
        tuple(edges.tolist()), {name: _spread(values, edges) for name, values in scores.items() if len(values)}
    )


def _spread(values: Array, edges: Array) -> Spread:
    quantiles = np.quantile(values, QUANTILES)
    return Spread(
        count=len(values),
        mean=float(values.mean()),
        std=float(values.std()),
        quantiles={f"{100 * share:g} %": float(value) for share, value in zip(QUANTILES, quantiles, strict=True)},
        histogram=tuple(np.histogram(values, edges)[0].tolist()),
    )
