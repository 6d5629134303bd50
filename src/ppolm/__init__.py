"""ppolm: PPO fine-tuning of language models with human feedback, where every number can be traced to its token."""

__version__ = "0.1.0"
