"""The stages before PPO: supervised fine-tuning and reward-model training."""

from ppolm.supervised.reward_trainer import RewardTrainer
from ppolm.supervised.sft_trainer import SFTTrainer

__all__ = ["RewardTrainer", "SFTTrainer"]
