"""Several reward models as one, more cautious where they disagree."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ppolm.models.reward_model import RewardModel


class RewardEnsemble:
    """score = mean − penalty · deviation of the members' normalised scores.

    A policy that exploits the mistakes of one reward model rarely fools all of them: where they disagree, the penalty
    removes the gain (Coste et al. 2024).
    """

    shares_passes = True
    """As its members do."""

    def __init__(self, members: Sequence[RewardModel], penalty: float = 0.0) -> None:
        self.members = list(members)
        self.penalty = penalty

    def __call__(self, prompts: Sequence[object], responses: Sequence[str]) -> list[float]:
        """A score per response."""
        scores = torch.tensor([member(prompts, responses) for member in self.members], dtype=torch.float64)
        return (scores.mean(0) - self.penalty * scores.std(0, correction=0)).tolist()
