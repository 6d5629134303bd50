"""Checks of settings in combination, and of the few values that need code to check.

Types and ranges are checked before: a type is declared with its field, a range in its ``setting(...)``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppolm.config.secrets import is_url, refuse_secret
from ppolm.config.without_effect import refuse_idle
from ppolm.errors import ConfigError
from ppolm.messages import brief
from ppolm.names import EMBEDDED, SERVED_RANKS

if TYPE_CHECKING:
    from ppolm.config.model_settings import ModelSettings
    from ppolm.config.ppo_config import PPOConfig
    from ppolm.config.supervised_config import RewardConfig, SFTConfig, SupervisedConfig


def reject_unknown_keys(values: Iterable[Any], known: list[str]) -> None:
    """Raise for a key that is not a setting, and suggest the most similar one."""
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key)[:100], known, n=1) if isinstance(key, str) else []
            hint = f" Did you mean {near[0]!r}?" if near else " `ppolm train --help` lists the settings."
            raise ConfigError(f"Unknown setting {brief(key)}.{hint}")


def _refuse_layers(config: PPOConfig | SupervisedConfig, loaded: str) -> None:
    """Raise ConfigError if layers are given with an adapter to load, which keeps its own shape."""
    if getattr(config, loaded) is not None and config.trainable_layers is not None:
        raise ConfigError(
            f"trainable_layers is for new adapters; {loaded} has layers of its own. Leave one of them out."
        )


def check_reward(config: RewardConfig) -> None:
    """Raise ConfigError if a reward model is to start from two adapters, or from one with another shape."""
    _refuse_layers(config, "sft_adapter")
    if config.sft_adapter is not None and config.start_from is not None:
        raise ConfigError("sft_adapter and start_from both name the adapter to start from. Leave one of them out.")


def check_supervised(config: SupervisedConfig) -> None:
    """Raise ConfigError for a combination of settings that cannot work."""
    _refuse_layers(config, "start_from")
    if config.patience is not None and not config.eval_every:
        raise ConfigError("patience counts validations, but eval_every 0 makes none. Set eval_every, or no patience.")
    if not config.eval_data and not config.eval_fraction:
        raise ConfigError(
            "eval_fraction is 0 and there is no eval_data, so the best weights could not be chosen. Set one of them."
        )


def check_shards(config: ModelSettings) -> None:
    """Raise ConfigError if the base is to be sharded and packed."""
    if config.shard_base and config.base_bits is not None:
        raise ConfigError(
            "shard_base deals out plain weights, and base_bits packs them, which FSDP cannot take apart. Leave one out."
        )


def check_sft(config: SFTConfig) -> None:
    """Raise ConfigError if packed or sharded weights are to be trained, or all of them from an adapter."""
    if config.train == "all" and config.start_from is not None:
        raise ConfigError(
            "train is 'all', but start_from names an adapter. Leave train out, or merge that policy into a model of "
            "its own first (ppolm export) and give its folder as model_name."
        )
    if config.train == "all" and config.shard_base:
        raise ConfigError("train is 'all', but only adapters are trained on a sharded base. Leave shard_base out.")
    if config.train == "all" and config.base_bits is not None:
        raise ConfigError("train is 'all', but weights in 4 bits cannot be trained. Leave base_bits out.")


def is_plain_name(name: str) -> bool:
    """Whether a name is a single folder name: no path separators, ``.`` or ``..``."""
    return bool(name.strip()) and name.strip() not in (".", "..") and not set(name) & {"/", "\\"} and name.isprintable()


def check_ppo(config: PPOConfig) -> None:
    """Raise ConfigError for settings that cannot work together or would have no effect."""
    if config.start_from is None:  # else the layers are compared with those of that run, once it is read
        _refuse_layers(config, "sft_adapter")
    _check_addresses(config)
    if config.batch_size % config.samples_per_prompt:
        raise ConfigError(
            f"batch_size {config.batch_size} is not a multiple of samples_per_prompt {config.samples_per_prompt}: "
            "batch_size counts responses. Change one of them."
        )
    if config.kl_placement == "loss" and config.kl_estimator == "k1":
        raise ConfigError(
            "kl_placement 'loss' with kl_estimator 'k1' would do nothing: the expected gradient of k1 is zero. "
            "Set kl_estimator to k2 or k3."
        )
    _check_engine(config)
    _check_sharded_ppo(config)
    _check_rewards(config)
    if config.run_name is not None and not is_plain_name(config.run_name):
        raise ConfigError(
            f"run_name is {brief(config.run_name)}, expected a plain folder name. Set output_dir to choose where it is."
        )
    _check_reward_models(config)
    refuse_idle(config)


def _check_addresses(config: PPOConfig) -> None:
    for name, value in (*(("reward", one) for one in config.reward), ("judge", config.judge)):
        if is_url(value):
            refuse_secret(name, str(value))
    if is_url(config.feedback_store):
        refuse_secret("feedback_store", config.feedback_store)


def _check_engine(config: PPOConfig) -> None:
    if config.engine != "local" and config.recompute_logprobs == "never":
        raise ConfigError(
            f"recompute_logprobs 'never' trusts the log-probabilities of the sampler, and engine {config.engine!r} "
            "computes with another library than the update does. Set recompute_logprobs to auto or always."
        )
    if config.engine == "mlx" and config.base_bits is not None:
        raise ConfigError("engine mlx has a copy of the base that is not packed. Leave base_bits out, or the engine.")
    if config.engine != "vllm":
        return
    if config.sft_adapter is None and config.start_from is None and config.lora_r > SERVED_RANKS[-1]:
        raise ConfigError(
            f"lora_r is {config.lora_r}, and vLLM serves ranks up to {SERVED_RANKS[-1]}. Lower it, or set "
            "engine: local."
        )
    if not config.engine_url:
        raise ConfigError("engine is vllm, but there is no server. Set engine_url, such as http://127.0.0.1:8000.")
    for url in config.engine_url:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"engine_url is {brief(url)}, expected an address such as http://127.0.0.1:8000.")
        refuse_secret("engine_url", url)
    if len({url.rstrip("/") for url in config.engine_url}) < len(config.engine_url):
        raise ConfigError(f"engine_url names the same server twice: {', '.join(config.engine_url)}.")


def _check_sharded_ppo(config: PPOConfig) -> None:
    if config.shard_base and config.engine == "mlx":
        raise ConfigError("engine mlx has a whole copy of the base in every process. Leave shard_base out, or mlx.")
    if config.shard_base and config.human_needs_model:
        raise ConfigError(
            "human_fallback is 'model', which the process that waits for people would compute alone, and a sharded "
            "base is computed by all of them. Set human_fallback: error, or leave shard_base out."
        )


def _check_rewards(config: PPOConfig) -> None:
    if not config.reward:
        raise ConfigError("reward is empty. Name at least one, such as 'model' or 'my_reward.py:score'.")
    if len(set(config.reward)) < len(config.reward):
        raise ConfigError(
            f"reward names the same reward twice: {', '.join(config.reward)}. Use reward_weights instead."
        )
    if config.reward_weights and len(config.reward_weights) != len(config.reward):
        raise ConfigError(
            f"reward_weights has {len(config.reward_weights)} numbers for {len(config.reward)} rewards. "
            "Give one weight per reward, or none."
        )


def _check_reward_models(config: PPOConfig) -> None:
    if len({str(Path(folder)) for folder in config.reward_model}) < len(config.reward_model):
        raise ConfigError(f"reward_model names the same folder twice: {', '.join(config.reward_model)}.")
    if (
        config.value_init == "reward"
        and not config.starts_with_value
        and "model" not in config.reward
        and not config.reward_model
    ):
        raise ConfigError(
            "value_init is 'reward', but there is no reward model. Set reward_model, or value_init: zero."
        )
    if config.human_needs_model and not config.reward_model and config.model_name != EMBEDDED:
        raise ConfigError(
            "human_fallback is 'model', but there is no reward model to fall back on. Set reward_model, or "
            "human_fallback: error."
        )
