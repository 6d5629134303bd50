"""From rewards and values to training targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppolm.advantage.gae_advantage import compute_gae_advantages, gae
from ppolm.advantage.return_calculator import add_reward_to_go
from ppolm.advantage.td_error import compute_td_errors
from ppolm.reward_kl.whitening import whiten
from ppolm.token_attribution import SAPairs


@dataclass(frozen=True)
class AdvantageComp:
    """TD errors, GAE and returns with one gamma and lambda."""

    gamma: float
    lam: float
    whiten_advantages: bool = False

    def compute_advantages(self, rewards: Any, values: Any, offsets: Any = None) -> tuple[Tensor, Tensor]:
        """Advantages and returns [N] of token rewards and values [N].

        ``offsets`` [S + 1] cut several sequences; without them it is one. A single reward for a longer sequence is its
        score, and belongs to the last token.
        """
        values = torch.as_tensor(values, dtype=torch.float32)
        rewards = torch.as_tensor(rewards, dtype=torch.float32)
        if offsets is None and rewards.numel() == 1:
            rewards = torch.nn.functional.pad(rewards.reshape(1), (len(values) - 1, 0))
        if rewards.shape != values.shape:
            raise ValueError(f"{len(rewards)} rewards for {len(values)} values: give one per token, or one score.")
        offsets = torch.tensor([0, len(values)]) if offsets is None else torch.as_tensor(offsets)
        return gae(rewards, values, offsets, self.gamma, self.lam)

    def add_advantages(self, sa_pairs: SAPairs | Sequence[Mapping[str, Any]]) -> SAPairs:
        """Add ``td_error``, ``advantage``, ``return`` and ``reward_to_go``. Whitening touches the advantages alone."""
        pairs = compute_td_errors(sa_pairs, self.gamma)
        pairs = compute_gae_advantages(pairs, self.gamma, self.lam)
        pairs = add_reward_to_go(pairs, self.gamma)
        if self.whiten_advantages:
            pairs = pairs.with_columns(advantage=whiten(pairs.column("advantage"), keep_mean=False))
        return pairs
