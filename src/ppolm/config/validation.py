"""Checks of configurations: types first, then the range of each value, then what values mean together."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from ppolm.config.idle import refuse_idle
from ppolm.config.secrets import is_url, refuse_secret
from ppolm.errors import ConfigError
from ppolm.messages import brief, is_utf8
from ppolm.names import EMBEDDED

if TYPE_CHECKING:
    from ppolm.config.model_settings import ModelSettings
    from ppolm.config.ppo_config import PPOConfig
    from ppolm.config.supervised_config import RewardConfig, SupervisedConfig


def reject_unknown_keys(values: Iterable[Any], known: list[str]) -> None:
    """Raise for a key that is no setting, with the nearest one that is."""
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key)[:100], known, n=1) if isinstance(key, str) else []
            hint = f" Did you mean {near[0]!r}?" if near else " `ppolm train --help` lists the settings."
            raise ConfigError(f"Unknown setting {brief(key)}.{hint}")


def coerce_types(config: ModelSettings) -> None:
    """Bring each value to its field's type where that loses nothing (1 -> 1.0, list -> tuple, '1e-5' -> 1e-5)."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = _coerce(field.name, getattr(config, field.name), hints[field.name])
        object.__setattr__(config, field.name, value)  # the dataclass is frozen for everybody else


def _coerce(name: str, value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _coerce(name, value, next(arm for arm in get_args(hint) if arm is not type(None)))
    if origin is Literal:
        if value not in get_args(hint):
            raise ConfigError(f"{name} is {brief(value)}, expected one of: {', '.join(map(str, get_args(hint)))}.")
        return value
    if origin is tuple:
        items = () if value is None else (value,) if isinstance(value, (str, int, float)) else value
        if not isinstance(items, (list, tuple)):
            raise ConfigError(f"{name} is {brief(value)}, expected a list.")
        return tuple(_coerce(name, item, get_args(hint)[0]) for item in items)
    if hint is float and not isinstance(value, bool):
        try:  # YAML reads 1e-5, without a dot, as text
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"{name} is {brief(value)}, expected a number.") from None
        if not math.isfinite(number):
            raise ConfigError(f"{name} is {brief(value)}, expected a finite number.")
        return number
    if hint is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not hint:
        names = {int: "a whole number", bool: "true or false", str: "text", float: "a number"}
        raise ConfigError(f"{name} is {brief(value)}, expected {names[hint]}.")
    if hint is int and not -LARGEST <= value <= LARGEST:
        raise ConfigError(f"{name} is {brief(value)}, expected a whole number that a computer can count to (2^63 - 1).")
    if hint is str and (problem := _not_text(value)):
        raise ConfigError(f"{name} is {brief(value)}, which holds {problem}. Write it without.")
    return value


LARGEST = 2**63 - 1
"""What torch and databases hold as a whole number."""


def _not_text(value: str) -> str | None:
    """What is in a text that no file name, address or name on the Hub can hold."""
    if "\0" in value:
        return "a NUL character"
    return None if is_utf8(value) else "bytes that are not UTF-8"


Rule = tuple[Callable[[Any], bool], str, tuple[str, ...]]

RULES: tuple[Rule, ...] = (
    (
        lambda x: x >= 1,
        "at least 1",
        (
            *("lora_r", "lora_alpha", "trainable_layers", "num_epochs", "threads"),
            *("batch_size", "samples_per_prompt", "ppo_epochs", "minibatch_size"),
            *(
                "microbatch_tokens",
                "rollout_tokens",
                "max_new_tokens",
                "buffer_capacity",
                "replay_rollouts",
                "kl_horizon",
                "max_steps",
            ),
            *("max_eval_prompts", "max_eval_rows", "max_tokens", "patience"),
            *("checkpoint_every", "keep_checkpoints"),
            "max_skipped_updates",
        ),
    ),
    (
        lambda x: x >= 0,
        "0 or more",
        (
            *("warmup_steps", "value_warmup_steps", "weight_decay", "value_coef", "entropy_coef", "kl_coef", "top_k"),
            *("missing_eos_penalty", "reward_retries", "eval_every", "min_delta", "table_every", "samples_per_step"),
            *("learning_rate", "value_learning_rate", "margin", "centre_coef", "reward_std_penalty", "human_timeout"),
            "trunk_mib",
        ),
    ),
    (
        lambda x: x > 0,
        "greater than 0",
        (
            *("adam_eps", "value_clip", "max_grad_norm", "target_kl", "kl_target", "reward_timeout", "temperature"),
            *("collapse_reward_drop", "collapse_kl", "judge_drop"),
        ),
    ),
    (lambda x: x >= 2, "at least 2", ("max_reference_rows",)),
    (lambda x: abs(x) <= 1e15, "a number within ±1e+15", ("default_reward", "missing_eos_penalty")),
    (lambda x: all(abs(one) <= 1e6 for one in x), "numbers within ±1e+06", ("reward_weights",)),
    (lambda x: 0 <= x < 2**63, "between 0 and 2^63 - 1", ("seed", "eval_seed")),
    (lambda x: 0 <= x <= 1, "between 0 and 1", ("gamma", "lam")),
    (lambda x: 0 < x <= 1, "greater than 0 and at most 1", ("top_p",)),
    (lambda x: 0 <= x < 1, "at least 0 and less than 1", ("lora_dropout", "eval_fraction", "collapse_entropy")),
    (lambda x: 0 < x < 1, "between 0 and 1, both excluded", ("clip_epsilon",)),
    (lambda x: x > 0, "greater than 0", ("clip_epsilon_high",)),
    (lambda x: x > 1, "greater than 1", ("dual_clip", "collapse_length")),
)


def check_ranges(config: ModelSettings) -> None:
    """Raise ConfigError for a value out of range."""
    for holds, expected, names in RULES:
        for name in names:
            value = getattr(config, name, None)  # not every configuration has every setting
            if value is not None and not holds(value):
                raise ConfigError(f"{name} is {brief(value)}, expected {expected}.")
    for name in ("model_name", "device", "output_dir", "dataset_split", "feedback_store"):
        if not getattr(config, name, "none").strip():
            raise ConfigError(f"{name} is empty, expected a name.")


def check_adapter(config: PPOConfig | RewardConfig) -> None:
    """Raise ConfigError for settings of a new adapter beside one that is loaded, which keeps its own shape."""
    if config.sft_adapter is not None and config.trainable_layers is not None:
        raise ConfigError(
            "trainable_layers is for new adapters; sft_adapter has layers of its own. Leave one of them out."
        )


def check_supervised(config: SupervisedConfig) -> None:
    """Raise ConfigError for a combination of settings that cannot work."""
    if config.patience is not None and not config.eval_every:
        raise ConfigError("patience counts validations, but eval_every 0 makes none. Set eval_every, or no patience.")
    if not config.eval_data and not config.eval_fraction:
        raise ConfigError("eval_fraction is 0 and there is no eval_data, so nothing could choose the best weights.")


def is_plain_name(name: str) -> bool:
    """Whether a name means one new folder inside another, and nothing above or below it."""
    return bool(name.strip()) and name.strip() not in (".", "..") and not set(name) & {"/", "\\"} and name.isprintable()


def check_ppo(config: PPOConfig) -> None:
    """Raise ConfigError for a combination of settings that cannot work, or of which one could not act."""
    check_adapter(config)
    for name, value in (*(("reward", one) for one in config.reward), ("judge", config.judge)):
        if is_url(value):
            refuse_secret(name, str(value))
    if is_url(config.feedback_store):
        refuse_secret("feedback_store", config.feedback_store)
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
    if config.run_name is not None and not is_plain_name(config.run_name):
        raise ConfigError(
            f"run_name is {brief(config.run_name)}, expected a plain folder name. The place is output_dir."
        )
    if len({str(Path(folder)) for folder in config.reward_model}) < len(config.reward_model):
        raise ConfigError(f"reward_model names the same folder twice: {', '.join(config.reward_model)}.")
    if config.value_init == "reward" and "model" not in config.reward and not config.reward_model:
        raise ConfigError(
            "value_init is 'reward', but there is no reward model. Set reward_model, or value_init: zero."
        )
    if config.human_needs_model and not config.reward_model and config.model_name != EMBEDDED:
        raise ConfigError(
            "human_fallback is 'model', but there is no reward model to fall back on. Set reward_model, or "
            "human_fallback: error."
        )
    refuse_idle(config)
