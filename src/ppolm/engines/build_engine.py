"""The engine that the setting ``engine`` names. A new engine is one more branch here."""

from __future__ import annotations

from pathlib import Path

from ppolm.config import PPOConfig
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.models import PolicyModel
from ppolm.rollout.ahead_generator import AheadGenerator
from ppolm.rollout.generator import Engine, Generator, PromptLimits
from ppolm.rollout.sampling import Sampling


def build_engine(config: PPOConfig, policy: PolicyModel) -> Engine:
    """What samples from ``policy``, with the weights that it has whenever it is asked."""
    if config.engine == "vllm":
        folder = config.engine_folder or str(Path(config.output_dir) / "engine")
        timeout, ahead = config.engine_timeout, config.async_rollouts
        return VllmEngine(policy, config.engine_url, folder, timeout=timeout, ahead=ahead)
    return policy


def build_generator(config: PPOConfig, policy: PolicyModel, setup: PromptLimits) -> Generator:
    """The generator of a training: with its engine, and with ``async_rollouts`` one rollout ahead."""
    engine, options = build_engine(config, policy), (Sampling.of(config), config.seed, config.samples_per_prompt)
    if config.async_rollouts and isinstance(engine, VllmEngine):
        return AheadGenerator(engine, setup, *options)
    return Generator(engine, setup, *options)
