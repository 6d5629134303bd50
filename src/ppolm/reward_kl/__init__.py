"""KL and the rewards of tokens: pure functions."""

from ppolm.reward_kl.kl_divergence import add_kl_to_sa_pairs
from ppolm.reward_kl.reward_adjuster import adjust_rewards_with_kl

__all__ = ["add_kl_to_sa_pairs", "adjust_rewards_with_kl"]
