"""Lets ``from config import PPOConfig`` work in a checkout; the code is in src/ppolm/config."""

from ppolm.config import PPOConfig as PPOConfig
