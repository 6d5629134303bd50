"""Advantages and returns: pure functions of rewards and values."""

from ppolm.advantage.advantage_comp import AdvantageComp
from ppolm.advantage.gae_advantage import compute_gae_advantages
from ppolm.advantage.return_calculator import add_reward_to_go
from ppolm.advantage.td_error import compute_td_errors

__all__ = ["AdvantageComp", "add_reward_to_go", "compute_gae_advantages", "compute_td_errors"]
