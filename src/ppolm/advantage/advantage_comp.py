"""From rewards and values to training targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ppolm.advantage.gae_advantage import GAEAdvantage, gae
from ppolm.advantage.return_calculator import ReturnCalculator
from ppolm.advantage.td_error import TDError
from ppolm.reward_kl.whitening import whiten
from ppolm.state import State, Stateful
from ppolm.token_attribution import SAPairs, as_sa_pairs


class TDErrors(Stateful, Protocol):
    """The stage that computes how much better a step turned out than expected."""

    def compute_td_errors(self, sa_pairs: SAPairs) -> SAPairs:
        """Add ``td_error``."""


class Advantages(Stateful, Protocol):
    """The stage that estimates advantages."""

    def compute_gae_advantages(self, sa_pairs: SAPairs) -> SAPairs:
        """Add ``advantage`` and ``return``."""


class Returns(Stateful, Protocol):
    """The stage that sums the rewards still to come."""

    def add_reward_to_go(self, sa_pairs: SAPairs) -> SAPairs:
        """Add ``reward_to_go``."""


class AdvantageComp:
    """TD errors, GAE and returns with one gamma and lambda. Any object with the same method can replace a stage."""

    def __init__(
        self,
        gamma: float,
        lam: float,
        whiten_advantages: bool = False,
        td_error: TDErrors | None = None,
        gae_advantage: Advantages | None = None,
        return_calculator: Returns | None = None,
    ) -> None:
        self.gamma, self.lam, self.whiten_advantages = gamma, lam, whiten_advantages
        self.td_error = TDError(gamma) if td_error is None else td_error
        self.gae_advantage = GAEAdvantage(gamma, lam) if gae_advantage is None else gae_advantage
        self.return_calculator = ReturnCalculator(gamma) if return_calculator is None else return_calculator

    def compute_advantages(self, rewards: Any, values: Any, offsets: Any = None) -> tuple[Tensor, Tensor]:
        """Advantages and returns [N] of token rewards and values [N].

        ``offsets`` [S + 1] separate several sequences; without them there is one. A single reward for a longer sequence
        is its score, and belongs to the last token.
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
        """Add ``td_error``, ``advantage``, ``return`` and ``reward_to_go``. Only the advantages are whitened."""
        pairs = self.td_error.compute_td_errors(as_sa_pairs(sa_pairs))
        pairs = self.gae_advantage.compute_gae_advantages(pairs)
        pairs = self.return_calculator.add_reward_to_go(pairs)
        if self.whiten_advantages:
            pairs = pairs.with_columns(advantage=whiten(pairs.column("advantage"), keep_mean=False))
        return pairs

    def stages(self) -> dict[str, Stateful]:
        """The stages by name."""
        return {
            "td_error": self.td_error,
            "gae_advantage": self.gae_advantage,
            "return_calculator": self.return_calculator,
        }

    def state_dict(self) -> State:
        """The states of the stages; the built-in ones have none."""
        return {name: stage.state_dict() for name, stage in self.stages().items()}

    def load_state_dict(self, state: State) -> None:
        """Restore the states of the stages."""
        for name, stage in self.stages().items():
            stage.load_state_dict(state[name])
