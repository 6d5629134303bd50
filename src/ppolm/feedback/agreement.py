"""Inter-annotator agreement, corrected for chance. Pure functions that return None where it is not defined."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

Metric = Literal["nominal", "interval"]
"""δ²(a, b): 1 if a ≠ b, or (a − b)²."""


def cohen_kappa(first: Sequence[Any], second: Sequence[Any], metric: Metric = "nominal") -> float | None:
    """κ = 1 − D_o / D_e: D_o is the mean δ² of two annotators on the same items, D_e that of randomly paired values.

    ``nominal`` is Cohen's kappa (1960), ``interval`` his weighted kappa (1968) with quadratic weights. None if there
    are no items, or if both gave the same value to all of them.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values: two annotators must have judged the same items")
    if not first:
        return None
    if metric == "nominal":
        observed = statistics.fmean(a != b for a, b in zip(first, second, strict=True))
        share, other = Counter(first), Counter(second)
        expected = 1 - sum(share[value] * other[value] for value in share) / len(first) ** 2
    else:
        observed = statistics.fmean((a - b) ** 2 for a, b in zip(first, second, strict=True))
        apart = statistics.fmean(first) - statistics.fmean(second)
        expected = statistics.pvariance(first) + statistics.pvariance(second) + apart**2
    return None if expected == 0 else 1 - observed / expected


def krippendorff_alpha(units: Iterable[Sequence[Any]], metric: Metric = "nominal") -> float | None:
    """α = 1 − D_o / D_e = 1 − (n − 1) · Σ_u S(u) / (m_u − 1) / S(all), with S(v) = Σ_ij δ²(v_i, v_j).

    A unit u holds the m_u values given to one item; missing values are simply absent, and units with fewer than two
    values are ignored, which leaves n values. Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability". None
    if fewer than two values are left or all are the same.
    """
    pairable = [list(unit) for unit in units if len(unit) > 1]
    values = [value for unit in pairable for value in unit]
    spread = _pair_distances(values, metric)
    if spread == 0:
        return None
    within = sum(_pair_distances(unit, metric) / (len(unit) - 1) for unit in pairable)
    return 1 - (len(values) - 1) * within / spread


def _pair_distances(values: Sequence[Any], metric: Metric) -> float:
    """S(v): n² − Σ_c n_c² for nominal values, 2n · Σ (v − mean)² for numbers."""
    if metric == "nominal":
        return float(len(values) ** 2 - sum(count**2 for count in Counter(values).values()))
    return 2.0 * len(values) ** 2 * statistics.pvariance(values) if values else 0.0
