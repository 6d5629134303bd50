"""95 % intervals of agreement: the jackknife over items, without computing anything twice. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ppolm.feedback.agreement import Metric, cohen_kappa, krippendorff_alpha
from ppolm.measures.intervals import CONFIDENCE, Interval, student_quantile

Array = npt.NDArray[np.float64]
FEWEST = 3
"""Items below which leaving one out says nothing."""


def kappa_interval(first: Sequence[Any], second: Sequence[Any], metric: Metric = "nominal") -> Interval | None:
    """Cohen's kappa with its interval; None where kappa is not defined, for all items or without one of them.

    κ₋ᵢ follows from the sums of all items less those of item i.
    """
    kappa = cohen_kappa(first, second, metric)
    if kappa is None or len(first) < FEWEST:
        return None
    left = len(first) - 1
    if metric == "nominal":
        values = sorted({*first, *second})
        one, other = (np.array([values.index(value) for value in side]) for side in (first, second))
        count, others = (np.bincount(side, minlength=len(values)).astype(float) for side in (one, other))
        same = (one == other).astype(float)
        observed = ((1 - same).sum() - (1 - same)) / left
        chance = (count * others).sum() - others[one] - count[other] + same
        expected = 1 - chance / left**2
    else:
        a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
        apart = (a - b) ** 2
        observed = (apart.sum() - apart) / left
        squares = ((a**2).sum() - a**2 + (b**2).sum() - b**2) / left
        expected = squares - 2 * (a.sum() - a) * (b.sum() - b) / left**2
    return _interval(kappa, observed, expected)


def alpha_interval(units: Iterable[Sequence[Any]], metric: Metric = "nominal") -> Interval | None:
    """Krippendorff's alpha with its interval, leaving out an item at a time; None where alpha is not defined."""
    pairable = [list(unit) for unit in units if len(unit) > 1]
    alpha = krippendorff_alpha(pairable, metric)
    if alpha is None or len(pairable) < FEWEST:
        return None
    size = np.array([len(unit) for unit in pairable], dtype=float)
    if metric == "nominal":
        values = sorted({value for unit in pairable for value in unit})
        counts = np.array([[unit.count(value) for value in values] for unit in pairable], dtype=float)
        within = (size**2 - (counts**2).sum(1)) / (size - 1)
        number = size.sum() - size
        spread = number**2 - ((counts.sum(0) - counts) ** 2).sum(1)
    else:
        sums = np.array([sum(unit) for unit in pairable], dtype=float)
        squares = np.array([sum(value**2 for value in unit) for unit in pairable], dtype=float)
        within = 2 * (size * squares - sums**2) / (size - 1)
        number = size.sum() - size
        spread = 2 * (number * (squares.sum() - squares) - (sums.sum() - sums) ** 2)
    return _interval(alpha, (number - 1) * (within.sum() - within), spread)


def _interval(estimate: float, observed: Array, expected: Array) -> Interval | None:
    """m ± t · se, with se = √((G − 1)/G · Σ (m₋ᵢ − m̄)²) over the values 1 − observed/expected without each item."""
    if not (expected > 1e-12 * max(1.0, float(np.abs(expected).max()))).all():
        return None
    without, number = 1 - observed / expected, len(observed)
    error = math.sqrt((number - 1) / number * float(((without - without.mean()) ** 2).sum()))
    reach = student_quantile((1 + CONFIDENCE) / 2, number - 1) * error
    return Interval(estimate, max(-1.0, estimate - reach), min(1.0, estimate + reach))
