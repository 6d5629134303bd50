"""How much reward or judge changed since the first evaluation, with intervals: pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ppolm.measures.intervals import CONFIDENCE, Interval, student_quantile

Evaluation = Mapping[str, float]
"""Metrics by name: at least ``avg_reward``, others if available."""


def gain_of(history: Sequence[Evaluation], index: int, name: str) -> Interval | None:
    """Change of reward or judge since the first evaluation, with a 95 % interval; None where it is not known.

    Paired by prompt: both evaluations have the same prompts and the same random numbers. The best of several
    evaluations is likely to be a lucky one, so the interval is corrected for their number (Bonferroni).
    """
    first, now = history[0], history[index]
    mean = "avg_reward" if name == "reward" else name
    prompts = number_of_prompts(now)
    if mean not in now or mean not in first or prompts is None or prompts < 2:
        return None
    error = now.get(f"{name}_gain_error")
    if error is None:
        if not {f"{name}_std", "num_responses"} <= first.keys() & now.keys():
            return None
        error = difference_error(first, now, f"{name}_std")
    looks = max(1, len(history) - 1)
    reach = student_quantile(1 - (1 - CONFIDENCE) / (2 * looks), prompts - 1) * error
    change = now[mean] - first[mean]
    return Interval(change, change - reach, change + reach)


def number_of_prompts(evaluation: Evaluation) -> int | None:
    """Number of different prompts in an evaluation."""
    number = evaluation.get("num_prompts", evaluation.get("num_responses"))
    return None if number is None else int(number)


def difference_error(first: Evaluation, second: Evaluation, deviation: str) -> float:
    """Standard error of the difference of unpaired means; responses to one prompt count as one observation."""
    return math.sqrt(sum(row[deviation] ** 2 / (number_of_prompts(row) or 1) for row in (first, second)))
