"""Bringing the scores of a batch to mean 0 and deviation 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ppolm.reward_kl.reward_adjuster import Score

EPSILON = 1e-8


class RewardNormalizer:
    """(score − μ) / σ by the statistics of the batch, or of all batches so far.

    A response with a reward per token counts with its total and is only divided by σ: shifting every token by a
    constant would reward length. Nothing is changed while there are fewer than two responses to take statistics of.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.count, self.mean, self.sum_squares = 0, 0.0, 0.0

    def normalize(self, scores: Sequence[Score], update: bool = True) -> list[Score]:
        """Normalised scores. ``update`` False leaves the running statistics as they are, for evaluation."""
        if self.mode == "none":
            return list(scores)
        totals = [total(score) for score in scores]
        batch = moments(totals)
        if self.mode == "running" and update:
            self._add(*batch)
        count, mean, squares = (self.count, self.mean, self.sum_squares) if self.mode == "running" else batch
        if count < 2:
            return list(scores)
        deviation = math.sqrt(squares / count) + EPSILON
        return [
            (score - mean) / deviation if isinstance(score, (int, float)) else [x / deviation for x in score]
            for score in scores
        ]

    def _add(self, count: int, mean: float, squares: float) -> None:
        """Merge a batch into the running moments (Chan et al. 1979): exact for batches of any size."""
        merged = self.count + count
        delta = mean - self.mean
        self.mean += delta * count / merged
        self.sum_squares += squares + delta * delta * self.count * count / merged
        self.count = merged

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"count": self.count, "mean": self.mean, "sum_squares": self.sum_squares}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue from a checkpoint."""
        self.count, self.mean, self.sum_squares = int(state["count"]), state["mean"], state["sum_squares"]


def total(score: Score) -> float:
    """The score of a response as one number."""
    return float(score) if isinstance(score, (int, float)) else math.fsum(score)


def moments(values: Sequence[float]) -> tuple[int, float, float]:
    """Count, mean and sum of squared deviations."""
    mean = math.fsum(values) / len(values)
    return len(values), mean, math.fsum((value - mean) ** 2 for value in values)
