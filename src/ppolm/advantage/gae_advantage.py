"""Generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ppolm.advantage.ragged import discounted_suffix_sums
from ppolm.advantage.td_error import td_errors
from ppolm.state import Stateless
from ppolm.token_attribution import SAPairs, as_sa_pairs


def gae(rewards: Tensor, values: Tensor, offsets: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """A_t = Σ_{i≥0} (γλ)ⁱ δ_{t+i} and the return A_t + V(s_t); all [N]."""
    errors = td_errors(rewards, values, offsets, gamma)
    advantages = discounted_suffix_sums(errors, offsets, gamma * lam)
    return advantages.float(), (advantages + values.double()).float()


def compute_gae_advantages(sa_pairs: SAPairs | Sequence[Mapping[str, Any]], gamma: float, lam: float) -> SAPairs:
    """Add ``advantage`` and ``return``, from ``reward`` and ``value``."""
    pairs = as_sa_pairs(sa_pairs)
    advantages, returns = gae(pairs.column("reward"), pairs.column("value"), pairs.offsets, gamma, lam)
    return pairs.with_columns(advantage=advantages, **{"return": returns})


@dataclass(frozen=True)
class GAEAdvantage(Stateless):
    """How much better an action was than the policy's average, weighing near against far TD errors by λ."""

    gamma: float
    """Discount factor γ."""
    lam: float
    """λ: 0 trusts the value model, 1 the rewards alone."""

    def compute_gae_advantages(
        self,
        sa_pairs: SAPairs | Sequence[Mapping[str, Any]],
        gamma: float | None = None,
        lam: float | None = None,
    ) -> SAPairs:
        """Add ``advantage`` and ``return``, from ``reward`` and ``value``."""
        return compute_gae_advantages(
            sa_pairs, self.gamma if gamma is None else gamma, self.lam if lam is None else lam
        )
