"""KL and token rewards: pure functions, and the components that hold their settings."""

from ppolm.reward_kl.kl_divergence import KLDivergence, add_kl_to_sa_pairs
from ppolm.reward_kl.reward_adjuster import RewardAdjuster, adjust_rewards_with_kl

__all__ = ["KLDivergence", "RewardAdjuster", "add_kl_to_sa_pairs", "adjust_rewards_with_kl"]
