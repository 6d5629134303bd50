"""The KL coefficient, fixed or steered towards a target (Ziegler et al. 2019, arXiv 1909.08593)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ppolm.state import State


def adapt_kl_coef(kl_coef: float, kl: float, target: float, num_sequences: int, horizon: int) -> float:
    """β ← β · (1 + clip(KL/target − 1, ±0.2) · min(n / horizon, 1)); KL is the mean over sequences of their summed KL.

    A step of more sequences than the horizon counts as one whole horizon: β changes by a fifth at most, and a penalty
    never becomes a bonus.
    """
    error = min(max(kl / target - 1, -0.2), 0.2)
    return kl_coef * (1 + error * min(num_sequences / horizon, 1.0))


@dataclass
class KLController:
    """The current coefficient β, and where it acts: in the token rewards or in the policy loss."""

    coef: float
    """β now."""
    placement: str
    """reward or loss: where β acts."""
    adaptive: bool
    """Whether ``observe`` changes β."""
    target: float
    """KL per response, in nats, that an adaptive β aims at."""
    horizon: int
    """Responses over which an adaptive β changes: longer is slower."""

    @property
    def reward_coef(self) -> float:
        """β as the rewards use it."""
        return self.coef if self.placement == "reward" else 0.0

    @property
    def loss_coef(self) -> float:
        """β as the policy loss uses it."""
        return self.coef if self.placement == "loss" else 0.0

    def observe(self, kl: float, num_sequences: int) -> None:
        """Adapt to the KL of a step, if adaptive."""
        if self.adaptive:
            self.coef = adapt_kl_coef(self.coef, kl, self.target, num_sequences, self.horizon)

    def adjustable(self) -> Mapping[str, float]:
        """What a callback may change; an adaptive coefficient goes on from there."""
        return {"kl_coef": self.coef}

    def adjust(self, name: str, value: float) -> None:  # noqa: ARG002 (there is only one)
        """Use another coefficient."""
        self.coef = value

    def state_dict(self) -> State:
        """The coefficient."""
        return {"coef": self.coef}

    def load_state_dict(self, state: State) -> None:
        """Restore a saved coefficient."""
        self.coef = float(state["coef"])
