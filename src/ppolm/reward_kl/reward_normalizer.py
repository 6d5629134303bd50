"""Normalising the scores of a batch to mean 0 and standard deviation 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ppolm.reward_kl.reward_adjuster import Score

EPSILON = 1e-8
TOKEN_FLOOR = 0.1
"""Per-token scores are divided by at least this share of their root mean square."""


class RewardNormalizer:
    """Normalises scores by the mean and deviation of the batch, or of all batches so far: see ``standardize``.

    A batch of a single response has no deviation of its own and uses the statistics of all responses so far, itself
    included; the very first response of a training becomes 0. Evaluations before the first step, when there are no
    training statistics yet, use their own.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.count, self.mean, self.sum_squares = 0, 0.0, 0.0

    def normalize(self, scores: Sequence[Score], update: bool = True) -> list[Score]:
        """Normalised scores. ``update`` False leaves the running statistics as they are, for evaluation."""
        if self.mode == "none":
            return list(scores)
        batch = moments([total(score) for score in scores])
        if update:  # in both modes: a later batch may be too small to have statistics
            self._add(*batch)
        running = (self.count, self.mean, self.sum_squares)
        for count, mean, squares in (running, batch) if self.mode == "running" else (batch, running):
            if count > 1:
                return standardize(scores, mean, math.sqrt(squares / count))
        return standardize(scores, batch[1], 0.0)

    def _add(self, count: int, mean: float, squares: float) -> None:
        """Merge a batch into the running moments (Chan et al. 1979): exact for batches of any size."""
        merged = self.count + count
        delta = mean - self.mean
        self.mean += delta * count / merged
        self.sum_squares += squares + delta * delta * self.count * count / merged
        self.count = merged

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint saves."""
        return {"count": self.count, "mean": self.mean, "sum_squares": self.sum_squares}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Resume from a checkpoint."""
        self.count, self.mean = int(state["count"]), float(state["mean"])
        self.sum_squares = float(state["sum_squares"])


def standardize(scores: Sequence[Score], mean: float, deviation: float) -> list[Score]:
    """(score − μ) / (σ + 1e-8), and 0 where σ is 0: without a deviation there is no unit to measure with.

    Per-token scores are only divided, by max(σ, 0.1 · their root mean square): shifting every token by a constant would
    reward length, and scores whose totals hardly differ must not be blown up.
    """
    tokens = [x for score in scores if not isinstance(score, (int, float)) for x in score]
    floor = TOKEN_FLOOR * math.sqrt(math.fsum(x * x for x in tokens) / len(tokens)) if tokens else 0.0
    divisor = max(deviation, floor) + EPSILON
    return [
        ((score - mean) / (deviation + EPSILON) if deviation else 0.0)
        if isinstance(score, (int, float))
        else [x / divisor for x in score]
        for score in scores
    ]


def total(score: Score) -> float:
    """The score of a response as one number."""
    return float(score) if isinstance(score, (int, float)) else math.fsum(score)


def moments(values: Sequence[float]) -> tuple[int, float, float]:
    """Count, mean and sum of squared deviations; for equal values exactly that value and 0."""
    if min(values) == max(values):  # rounding of the mean would leave a deviation
        return len(values), values[0], 0.0
    mean = math.fsum(values) / len(values)
    return len(values), mean, math.fsum((value - mean) ** 2 for value in values)
