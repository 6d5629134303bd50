"""Temporal-difference errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppolm.advantage.ragged import steps_left
from ppolm.state import Stateless
from ppolm.token_attribution import SAPairs, as_sa_pairs


def td_errors(rewards: Tensor, values: Tensor, offsets: Tensor, gamma: float) -> Tensor:
    """δ_t = r_t + γ V(s_{t+1}) − V(s_t), with V = 0 after the last token of a sequence; all [N]."""
    next_values = torch.cat([values[1:], values.new_zeros(1)]) * (steps_left(offsets) > 0)
    return rewards.double() + gamma * next_values.double() - values.double()


def compute_td_errors(sa_pairs: SAPairs | Sequence[Mapping[str, Any]], gamma: float) -> SAPairs:
    """Add ``td_error``, from ``reward`` and ``value``."""
    pairs = as_sa_pairs(sa_pairs)
    errors = td_errors(pairs.column("reward"), pairs.column("value"), pairs.offsets, gamma)
    return pairs.with_columns(td_error=errors.float())


@dataclass(frozen=True)
class TDError(Stateless):
    """How much better a step turned out than the value model had predicted."""

    gamma: float
    """Discount factor γ."""

    def compute_td_errors(self, sa_pairs: SAPairs | Sequence[Mapping[str, Any]], gamma: float | None = None) -> SAPairs:
        """Add ``td_error``, from ``reward`` and ``value``."""
        return compute_td_errors(sa_pairs, self.gamma if gamma is None else gamma)
