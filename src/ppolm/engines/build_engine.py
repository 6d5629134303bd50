"""The engine that the setting ``engine`` names. A new engine is one more branch here and one more name in names.py."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

from ppolm.config import PPOConfig
from ppolm.errors import ConfigError
from ppolm.messages import reason
from ppolm.models import PolicyModel
from ppolm.rollout.ahead_generator import AheadGenerator
from ppolm.rollout.generator import Engine, Generator, ReleasedEngine
from ppolm.rollout.sampling import Sampling


def build_engine(config: PPOConfig, policy: PolicyModel, trains: bool = False) -> Engine:
    """What samples from ``policy``, with the weights that it has whenever it is asked. ``release_engine`` ends its use.

    ``trains``: whether it is for a training, which writes into ``output_dir`` anyway.
    """
    check_engine(config)
    if config.engine == "mlx":
        try:
            from ppolm.engines.mlx_engine import MLXEngine
        except ImportError as error:  # such as MLX without a build for this machine
            raise _not_installed(reason(error)) from error
        return MLXEngine(policy)
    if config.engine == "vllm":
        return _build_vllm(config, policy, trains)
    if policy.setup.shards is not None:
        policy.setup.shards.check_fits(policy.setup.device)
    return policy


def build_generator(config: PPOConfig, policy: PolicyModel) -> Generator:
    """The generator of a training: with its engine, and with ``async_rollouts`` one rollout ahead."""
    from ppolm.engines.vllm_engine import VllmEngine

    engine, setup = build_engine(config, policy, trains=True), policy.setup
    options = (Sampling.of(config), config.seed, config.samples_per_prompt)
    if config.async_rollouts and isinstance(engine, VllmEngine):
        return AheadGenerator(engine, setup, *options, setup.ranks)
    return Generator(engine, setup, *options, setup.ranks)


def check_engine(config: PPOConfig) -> None:
    """Raise if the engine cannot be used on this machine; to be called before a large model is loaded for nothing."""
    if config.engine == "mlx":
        missing = [name for name in ("mlx", "mlx_lm") if find_spec(name) is None]
        if missing:
            raise _not_installed(f"there is no {' and no '.join(missing)}")


def release_engine(engine: object) -> None:
    """Let an engine remove what it has put elsewhere. It can be used again afterwards."""
    if isinstance(engine, ReleasedEngine):
        engine.release()


def _build_vllm(config: PPOConfig, policy: PolicyModel, trains: bool) -> Engine:
    """The servers' engine."""
    from ppolm.engines.vllm_engine import VllmEngine

    folder = config.engine_folder
    if folder is None:  # a command that only samples does not make a folder for runs
        beside_runs = trains or Path(config.output_dir).is_dir()
        folder = str(Path(config.output_dir) / "engine" if beside_runs else Path(tempfile.gettempdir()))
    ahead, ours = config.async_rollouts, config.engine_folder is None
    return VllmEngine(policy, config.engine_url, folder, config.engine_timeout, ahead=ahead, ours=ours)


def _not_installed(why: str) -> ConfigError:
    return ConfigError(
        f"engine is mlx, but it cannot be imported: {why}. Install it with Python 3.11 or newer: pip install "
        "'ppolm[mlx]'; or set engine: local."
    )
