"""The tiny model that ships with ppolm, its reward model, and the settings of the demo. Built by scripts/."""

from __future__ import annotations

from pathlib import Path

from ppolm.names import EMBEDDED

FOLDER = Path(__file__).parent
MODEL = FOLDER / "model"
"""The SFT model: a Qwen3 of under a million weights, with its tokenizer."""
REWARD = FOLDER / "reward"
"""The reward adapter, learned from preferences of the gold judge."""
DEMO = FOLDER / "demo.yaml"
"""Settings with which PPO on the embedded model learns in about two minutes."""
RECIPES = {"ppolm train": DEMO, "ppolm sft": FOLDER / "sft.yaml", "ppolm reward": FOLDER / "reward.yaml"}
"""Settings of the commands for the embedded model: the defaults are for larger ones."""


def model_path(name: str) -> str:
    """The folder that the name ``embedded`` stands for; any other name as it is."""
    return str(MODEL) if name == EMBEDDED else name


def reward_path(name: str) -> str:
    """The reward model's folder that the name ``embedded`` stands for; any other path as it is."""
    return str(REWARD) if name == EMBEDDED else name
