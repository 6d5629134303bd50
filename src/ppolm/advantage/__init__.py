"""Advantages and returns: pure functions of rewards and values, and the components that hold their settings."""

from ppolm.advantage.advantage_comp import AdvantageComp
from ppolm.advantage.gae_advantage import GAEAdvantage, compute_gae_advantages
from ppolm.advantage.return_calculator import ReturnCalculator, add_reward_to_go
from ppolm.advantage.td_error import TDError, compute_td_errors

__all__ = [
    "AdvantageComp",
    "GAEAdvantage",
    "ReturnCalculator",
    "TDError",
    "add_reward_to_go",
    "compute_gae_advantages",
    "compute_td_errors",
]
