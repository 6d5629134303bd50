"""Lets ``from ppo_trainer import PPOTrainer`` work in a checkout; the code is in src/ppolm/ppo_trainer."""

from ppolm.ppo_trainer import PPOTrainer as PPOTrainer
