"""Typed configurations."""

from ppolm.config.model_settings import ModelSettings
from ppolm.config.ppo_config import PPOConfig
from ppolm.config.supervised_config import RewardConfig, SFTConfig, SupervisedConfig

__all__ = ["ModelSettings", "PPOConfig", "RewardConfig", "SFTConfig", "SupervisedConfig"]
