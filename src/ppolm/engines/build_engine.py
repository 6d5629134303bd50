"""The engine that the setting ``engine`` names. A new engine is one more branch here and one more name in names.py."""

from __future__ import annotations

from importlib.util import find_spec

from ppolm.config import PPOConfig
from ppolm.errors import ConfigError
from ppolm.messages import reason
from ppolm.models import PolicyModel
from ppolm.rollout.generator import Engine


def build_engine(config: PPOConfig, policy: PolicyModel) -> Engine:
    """What samples from ``policy``, with the weights that it has whenever it is asked."""
    check_engine(config)
    if config.engine == "mlx":
        try:
            from ppolm.engines.mlx_engine import MLXEngine
        except ImportError as error:  # such as MLX without a build for this machine
            raise _not_installed(reason(error)) from error
        return MLXEngine(policy)
    return policy


def check_engine(config: PPOConfig) -> None:
    """Raise if the engine cannot be used on this machine; to be called before a large model is loaded for nothing."""
    if config.engine == "mlx":
        missing = [name for name in ("mlx", "mlx_lm") if find_spec(name) is None]
        if missing:
            raise _not_installed(f"there is no {' and no '.join(missing)}")


def _not_installed(why: str) -> ConfigError:
    return ConfigError(
        f"engine is mlx, but it cannot be imported: {why}. Install it with Python 3.11 or newer: pip install "
        "'ppolm[mlx]'; or set engine: local."
    )
