"""PPOConfig: every setting of a run, validated, with YAML in and out."""

from ppolm.config.ppo_config import PPOConfig

__all__ = ["PPOConfig"]
