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
EXAMPLE = FOLDER / "example"
"""A finished run to look at, and comparisons to judge: what `ppolm studio --example` shows."""
EXAMPLE_RUN = EXAMPLE / "first-look"
EXAMPLE_COMPARISONS = EXAMPLE / "comparisons.jsonl"
"""A row each: ``prompt``, two ``responses`` (of the reference and of the best policy), and their ``sources``."""


def model_path(name: str) -> str:
    """The folder that the name ``embedded`` stands for; any other name as it is."""
    return str(MODEL) if name == EMBEDDED else name


def reward_path(name: str) -> str:
    """The reward model's folder that the name ``embedded`` stands for; any other path as it is."""
    return str(REWARD) if name == EMBEDDED else name


def example_run_path() -> Path:
    """The run folder that ppolm carries; to be read only, for it may belong to an installation."""
    return EXAMPLE_RUN
