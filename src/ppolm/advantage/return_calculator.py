"""Reward-to-go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ppolm.advantage.ragged import discounted_suffix_sums
from ppolm.state import Stateless
from ppolm.token_attribution import SAPairs, as_sa_pairs


def add_reward_to_go(sa_pairs: SAPairs | Sequence[Mapping[str, Any]], gamma: float) -> SAPairs:
    """Add ``reward_to_go``: G_t = Σ_{i≥0} γⁱ r_{t+i}, from ``reward``."""
    pairs = as_sa_pairs(sa_pairs)
    return pairs.with_columns(reward_to_go=discounted_suffix_sums(pairs.column("reward"), pairs.offsets, gamma).float())


@dataclass(frozen=True)
class ReturnCalculator(Stateless):
    """The discounted sum of rewards from each token on."""

    gamma: float
    """Discount factor γ."""

    def add_reward_to_go(self, sa_pairs: SAPairs | Sequence[Mapping[str, Any]], gamma: float | None = None) -> SAPairs:
        """Add ``reward_to_go``, from ``reward``."""
        return add_reward_to_go(sa_pairs, self.gamma if gamma is None else gamma)
