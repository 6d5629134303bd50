"""The demo settings, and the tiny model and reward model that ship with ppolm, built by scripts/build_embedded.py."""

from __future__ import annotations

from pathlib import Path

from ppolm.names import EMBEDDED

FOLDER = Path(__file__).parent
MODEL = FOLDER / "model"
"""The SFT model: a Qwen3 with fewer than a million weights, and its tokenizer."""
REWARD = FOLDER / "reward"
"""The reward adapter, trained on preferences of the gold judge."""
DEMO = FOLDER / "demo.yaml"
"""Settings for PPO on the embedded model, which learns in about two minutes."""
RECIPES = {"ppolm train": DEMO, "ppolm sft": FOLDER / "sft.yaml", "ppolm reward": FOLDER / "reward.yaml"}
"""Settings of each command for the embedded model; the defaults are meant for larger models."""
EXAMPLE = FOLDER / "example"
"""A finished run to look at, and comparisons to judge: what `ppolm studio --example` shows."""
EXAMPLE_RUN = EXAMPLE / "first-look"
EXAMPLE_COMPARISONS = EXAMPLE / "comparisons.jsonl"
"""Rows with ``prompt``, ``first`` (the reference's answer) and ``second`` (the best policy's), as studies read them."""


def model_path(name: str) -> str:
    """The model folder for the name ``embedded``; any other name unchanged."""
    return str(MODEL) if name == EMBEDDED else name


def reward_path(name: str) -> str:
    """The reward model folder for the name ``embedded``; any other path unchanged."""
    return str(REWARD) if name == EMBEDDED else name


def example_run_path() -> Path:
    """The run folder that ppolm carries; to be read only, for it may belong to an installation."""
    return EXAMPLE_RUN
