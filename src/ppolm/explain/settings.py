"""The settings that turned the scores, log-probabilities and values of a step into its advantages."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ppolm.config import PPOConfig
from ppolm.errors import ConfigError, DataError

ESTIMATORS = ("k1", "k2", "k3")
LARGEST_COEF = 1000.0
"""Far beyond any useful KL coefficient; a larger one is a typing error."""


@dataclass(frozen=True)
class StepSettings:
    """The settings that the rewards and advantages of one step were, or in a "what if" would be, computed with."""

    gamma: float
    """Discount factor γ."""
    lam: float
    """λ of GAE."""
    reward_coef: float
    """β of the KL penalty in the token rewards, in this step; 0 if the penalty is part of the loss."""
    kl_estimator: str
    """k1, k2 or k3."""
    whiten_rewards: bool
    """Whether the token rewards of the batch were scaled to deviation 1."""
    whiten_advantages: bool
    """Whether the advantages of the batch were centred and scaled."""

    def __post_init__(self) -> None:
        for name, most in (("gamma", 1.0), ("lam", 1.0), ("reward_coef", LARGEST_COEF)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not math.isfinite(value) or not 0 <= value <= most:
                raise ConfigError(f"{name} is {str(value)[:40]}, expected a number from 0 to {most:g}.")
        if self.kl_estimator not in ESTIMATORS:
            raise ConfigError(f"kl_estimator is {self.kl_estimator!r:.40}, expected {', '.join(ESTIMATORS)}.")

    @classmethod
    def of(cls, config: PPOConfig, notes: Mapping[str, Any]) -> StepSettings:
        """The settings of a stored step, from its run's configuration and the notes of its table.

        Only the KL coefficient changes from step to step (``adaptive_kl``). Tables note the rewards' own
        (``reward_coef``); older ones note β (``kl_coef``), which is the rewards' unless it acts in the loss.
        """
        return cls(
            gamma=config.gamma,
            lam=config.lam,
            reward_coef=_reward_coef(config, notes),
            kl_estimator=config.kl_estimator,
            whiten_rewards=config.whiten_rewards,
            whiten_advantages=config.whiten_advantages,
        )

    def changed(self, **values: Any) -> StepSettings:
        """A copy with other values."""
        return dataclasses.replace(self, **values)

    def to_dict(self) -> dict[str, Any]:
        """All of them by name."""
        return dataclasses.asdict(self)


def _reward_coef(config: PPOConfig, notes: Mapping[str, Any]) -> float:
    """β as the rewards of the step used it."""
    if isinstance(noted := notes.get("reward_coef"), (int, float)):
        return float(noted)
    if config.kl_placement == "loss":
        return 0.0
    if isinstance(noted := notes.get("kl_coef"), (int, float)):
        return float(noted)
    if config.adaptive_kl:
        raise DataError(
            "This table does not say which kl_coef its step had, and with adaptive_kl it changes from step to step, so "
            "its rewards cannot be explained. Tables that ppolm train writes say it."
        )
    return config.kl_coef
