"""What a reward model knows beyond length: longer answers often win, and counting words is easy to learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ppolm.measures.intervals import Clusters, Rows
from ppolm.measures.words import words
from ppolm.readiness.accuracy import Array, Estimate, correct, estimate, share_estimate

UNITS: dict[str, Callable[[str], int]] = {"words": lambda text: len(words(text)), "characters": len}

MATCHED = 0.1
"""Largest relative length difference of answers of similar length, as a fraction of the longer one."""

FEW_MATCHED = 20
"""With fewer such pairs, the quarter of the pairs with the closest lengths is used instead."""

STRATA = 5
"""Strata of length difference within which longer and shorter winners are balanced; five remove about nine tenths of
the bias of a confounder (Cochran 1968)."""


@dataclass(frozen=True)
class LengthReport:
    """The model compared with a rule that only counts words or characters."""

    unit: str
    longer_wins: bool
    """Unit and direction of the best such rule, chosen on these same pairs: this favours the rule, never the model."""
    baseline: Estimate
    gain: Estimate
    """Accuracy of the model − accuracy of the rule, pair by pair."""
    prefers_longer: float | None
    """Fraction of the pairs of different length in which the model scores the longer answer higher."""
    people_prefer_longer: float | None
    correlation: float
    """Of score and length differences, ΣΔsΔℓ / √(ΣΔs² ΣΔℓ²): independent of which answer comes first."""
    matched: Estimate | None
    """Accuracy on pairs of similar length."""
    matched_rule: str
    longer_won: Estimate | None
    shorter_won: Estimate | None
    """Accuracy on the pairs in which the longer, or the shorter, answer won."""
    balanced: Estimate | None
    """Accuracy with longer and shorter winners given equal weight: 0.5 for a model that knows only length."""
    balanced_pairs: float
    """Σ of those weights: the number of pairs that are informative beyond length."""


def length_report(chosen: Sequence[str], rejected: Sequence[str], difference: Array, prompts: Clusters) -> LengthReport:
    """Compare score differences [P] with what the lengths of the answers alone would predict."""
    lengths = {
        unit: (np.array([count(text) for text in chosen], float), np.array([count(text) for text in rejected], float))
        for unit, count in UNITS.items()
    }
    rules = {(unit, sign): correct(sign * (a - b)) for unit, (a, b) in lengths.items() for sign in (1, -1)}
    unit, sign = max(rules, key=lambda rule: float(rules[rule].mean()))
    rule, right, prompt = rules[unit, sign], correct(difference), np.asarray(prompts)
    longer = lengths[unit][0] - lengths[unit][1]
    relative = np.abs(longer) / np.maximum(np.maximum(*lengths[unit]), 1)
    matched, matched_rule = matched_pairs(relative)
    weights = balancing_weights(longer, relative)
    baseline, gain = share_estimate(rule, prompt), estimate(right - rule, prompt)
    assert baseline is not None
    assert gain is not None
    unequal = longer != 0
    return LengthReport(
        unit=unit,
        longer_wins=sign > 0,
        baseline=baseline,
        gain=gain,
        prefers_longer=float(correct(difference * np.sign(longer))[unequal].mean()) if unequal.any() else None,
        people_prefer_longer=float((longer > 0)[unequal].mean()) if unequal.any() else None,
        correlation=cosine(difference, longer),
        matched=share_estimate(right[matched], prompt[matched]),
        matched_rule=matched_rule.format(unit=unit),
        longer_won=share_estimate(right[longer > 0], prompt[longer > 0]),
        shorter_won=share_estimate(right[longer < 0], prompt[longer < 0]),
        balanced=share_estimate(right, prompt, weights),
        balanced_pairs=float(weights.sum()),
    )


def matched_pairs(relative: Array) -> tuple[Rows, str]:
    """Indices of the pairs of similar length, given relative differences [P], and the rule that selected them."""
    within = np.flatnonzero(relative <= MATCHED)
    if len(within) >= FEW_MATCHED:
        return within, f"lengths within {MATCHED:.0%} ({{unit}})"
    closest = np.argsort(relative, kind="stable")[: -(-len(relative) // 4)]
    return closest, f"the closest quarter by {{unit}}, up to {relative[closest].max():.0%} apart"


def balancing_weights(longer: Array, relative: Array) -> Array:
    """2 · share of the opposite outcome among pairs of similar length difference [P]; 1 for pairs of equal length.

    Overlap weights (Li, Morgan and Zaslavsky 2018): within a stratum, longer and shorter winners get the same total
    weight. A stratum in which the longer answer always won cannot separate length from quality and gets weight 0.
    """
    weights = np.ones(len(longer))
    unequal = np.flatnonzero(longer)
    for stratum in np.array_split(unequal[np.argsort(relative[unequal], kind="stable")], STRATA):
        if len(stratum):
            share = (longer[stratum] > 0).mean()
            weights[stratum] = 2 * np.where(longer[stratum] > 0, 1 - share, share)
    return weights


def cosine(first: Array, second: Array) -> float:
    """Σab / √(Σa² Σb²), 0 if either is 0 everywhere."""
    norm = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / norm if norm else 0.0
