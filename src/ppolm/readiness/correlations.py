"""Correlation with the scores and thumbs that people gave to single answers: pure functions of arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ppolm.measures.intervals import Clusters, statistic_interval
from ppolm.readiness.accuracy import Array, Estimate, as_estimate


@dataclass(frozen=True)
class RatingReport:
    """Agreement of the model with people's scores."""

    spearman: Estimate
    pearson: Estimate
    beyond_length: Estimate
    """Partial rank correlation, controlling for the length of the answers."""


@dataclass(frozen=True)
class ThumbReport:
    """Agreement of the model with people's thumbs."""

    auc: Estimate
    """How often an answer with thumbs up scores higher than one with thumbs down."""
    up: int
    beyond_length: Estimate


def rating_report(scores: Array, human: Array, lengths: Array, prompts: Clusters) -> RatingReport:
    """Correlations of the model's scores [R] with people's scores."""
    return RatingReport(
        spearman=estimate_of(spearman, prompts, scores, human),
        pearson=estimate_of(pearson, prompts, scores, human),
        beyond_length=estimate_of(partial_spearman, prompts, scores, human, lengths),
    )


def thumb_report(scores: Array, labels: Array, lengths: Array, prompts: Clusters) -> ThumbReport:
    """How well scores [T] separate thumbs up (1) from thumbs down (0)."""
    return ThumbReport(
        auc=estimate_of(auc, prompts, scores, labels),
        up=int(labels.sum()),
        beyond_length=estimate_of(partial_spearman, prompts, scores, labels, lengths),
    )


def estimate_of(statistic: Callable[..., float], prompts: Clusters, *columns: Array) -> Estimate:
    """A statistic of some columns, with an interval clustered by prompt."""
    interval = statistic_interval(lambda rows: statistic(*(column[rows] for column in columns)), prompts)
    return as_estimate(interval, prompts)


def ranks(values: Array) -> Array:
    """1 for the smallest; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def pearson(first: Array, second: Array) -> float:
    """Cov(a, b) / (σ_a σ_b); 0 if either is constant, which says nothing about the other."""
    a, b = first - first.mean(), second - second.mean()
    norm = np.sqrt((a**2).sum() * (b**2).sum())
    # Rounding gives a constant column a deviation of about 1e-16 of its size.
    tiny = 1e-12 * len(a) * (1 + np.abs(first).max()) * (1 + np.abs(second).max())
    return float(np.clip((a * b).sum() / norm, -1, 1)) if norm > tiny else 0.0


def spearman(first: Array, second: Array) -> float:
    """Pearson correlation of the ranks (Spearman 1904)."""
    return pearson(ranks(first), ranks(second))


def partial_spearman(first: Array, second: Array, third: Array) -> float:
    """(ρ₁₂ − ρ₁₃ρ₂₃) / √((1 − ρ₁₃²)(1 − ρ₂₃²)); 0 if the third fully explains either of the others."""
    a, b, c = spearman(first, second), spearman(first, third), spearman(second, third)
    left = (1 - b**2) * (1 - c**2)
    return float(np.clip((a - b * c) / np.sqrt(left), -1, 1)) if left > 1e-9 else 0.0


def auc(scores: Array, labels: Array) -> float:
    """P(s_up > s_down) + ½ P(s_up = s_down) (Mann and Whitney 1947); ½ if all labels are the same."""
    up = labels > 0.5
    pairs = up.sum() * (~up).sum()
    return float((ranks(scores)[up].sum() - up.sum() * (up.sum() + 1) / 2) / pairs) if pairs else 0.5
