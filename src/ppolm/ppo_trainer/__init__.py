"""The trainer and the components it drives."""

from ppolm.ppo_trainer.ppo_trainer import PPOTrainer

__all__ = ["PPOTrainer"]
