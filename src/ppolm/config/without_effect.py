"""Settings that were changed but have no effect given the others: accepting them would mislead the user."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ppolm.errors import ConfigError

if TYPE_CHECKING:
    from ppolm.config.ppo_config import PPOConfig

Values = Mapping[str, Any]

EVALUATION = (
    *("patience", "min_delta", "judge", "stop_on_alarm", "eval_prompts", "eval_fraction", "max_eval_prompts"),
    *("collapse_reward_drop", "collapse_kl", "collapse_entropy", "collapse_length"),
)
"""Settings used only by evaluations during training (``ppolm eval`` uses eval_seed too)."""


def _asked(values: Values) -> tuple[Any, ...]:
    """Every reward named in the settings, including the judge."""
    return (*_several(values["reward"]), values["judge"])


def _several(value: Any) -> tuple[Any, ...]:
    """A list as a tuple; any other value, as in a damaged file, is left for the type checks to refuse."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _nobody_asks_the_model(values: Values) -> bool:
    stands_in = values["human_fallback"] == "model" and "human" in _asked(values)
    return "model" not in _asked(values) and not stands_in and values["value_init"] != "reward"


def _nothing_is_served(values: Values) -> bool:
    return not any(str(name).startswith(("http://", "https://")) for name in _asked(values))


Rule = tuple[tuple[str, ...], Callable[[Values], bool], str]

RULES: tuple[Rule, ...] = (
    (
        ("start_reference", "start_value"),
        lambda values: values["start_from"] is None,
        "{name} is for a run that starts from another, but start_from is not set. Set it, or leave {name} out.",
    ),
    (
        ("sft_adapter",),
        lambda values: values["start_from"] is not None and values["start_reference"] == "policy",
        "sft_adapter is a reference, but with start_reference 'policy' the policy of start_from is. Leave one out.",
    ),
    (
        ("value_init",),
        lambda values: values["start_from"] is not None and values["start_value"],
        "value_init is for a new value model, but this run begins with that of start_from. Set start_value: false, or "
        "leave value_init out.",
    ),
    (
        EVALUATION,
        lambda values: not values["eval_every"],
        "{name} is for evaluations, but eval_every 0 makes none. Set eval_every, or leave {name} out.",
    ),
    (
        ("eval_fraction",),
        lambda values: values["eval_prompts"] is not None,
        "eval_fraction holds out training prompts, but eval_prompts are given. Leave one of them out.",
    ),
    (
        ("judge_drop",),
        lambda values: values["judge"] is None,
        "judge_drop is a limit for the judge, but there is none. Set judge, or leave judge_drop out.",
    ),
    (
        ("reward_model",),
        _nobody_asks_the_model,
        "reward_model is given, but nothing asks for it: not the reward, the judge, human_fallback or value_init. Add "
        "'model' to reward, or leave reward_model out.",
    ),
    (
        ("reward_std_penalty",),
        lambda values: len(_several(values["reward_model"])) < 2,
        "reward_std_penalty needs several reward models that can disagree. Give reward_model more than one folder.",
    ),
    (
        ("feedback_store", "human_timeout", "human_fallback"),
        lambda values: "human" not in _asked(values),
        "{name} is for the reward 'human', but neither reward nor judge names it. Add it, or leave {name} out.",
    ),
    (
        ("reward_retries",),
        _nothing_is_served,
        "reward_retries is for rewards at http(s)://..., but neither reward nor judge is one. Leave it out.",
    ),
    (
        ("default_reward",),
        lambda values: values["on_reward_error"] != "default",
        "default_reward is used for failed scores only with on_reward_error: default. Set that, or leave it out.",
    ),
    (
        (
            "engine_url",
            "engine_folder",
            "engine_timeout",
            "async_rollouts",
            "importance_cap",
            "importance_sequence_cap",
        ),
        lambda values: values["engine"] != "vllm",
        "{name} is for responses of servers, but engine is not vllm. Set engine: vllm, or leave {name} out.",
    ),
    (
        ("adaptive_kl",),
        lambda values: not values["kl_coef"],
        "adaptive_kl multiplies kl_coef, and a multiple of 0 is always 0. Set kl_coef to a first value above 0, or "
        "adaptive_kl: false.",
    ),
    (
        ("kl_target", "kl_horizon"),
        lambda values: not values["adaptive_kl"],
        "{name} is for adaptive_kl, which is off. Set adaptive_kl: true, or leave {name} out.",
    ),
)


def refuse_idle(config: PPOConfig) -> None:
    """Raise ConfigError for the first setting that was changed from its default and has no effect."""
    for name, why in _idle(vars(config), defaults(config)):
        raise ConfigError(why.format(name=name))


def without_idle(values: Values, usual: Values, stored: Values | None = None) -> dict[str, Any]:
    """The settings with those that have no effect reset to their defaults ``usual``.

    For settings that were not all chosen together, or that a run stored when they were still accepted. With ``stored``
    only those that still are what was stored: somebody has just chosen the others.
    """
    kept = dict(values)

    def resettable() -> list[str]:
        idle = [name for name, _ in _idle({**usual, **kept}, usual)]
        return [name for name in idle if stored is None or _same(kept[name], stored[name])]

    while names := resettable():  # resetting one may leave another without effect
        kept |= {name: usual[name] for name in names}
    return kept


def without_effect(values: Values) -> frozenset[str]:
    """Settings that have no effect with these, whatever they are."""
    return frozenset(name for names, is_idle, _ in RULES if is_idle(values) for name in names)


def defaults(config: Any) -> dict[str, Any]:
    """The default of every setting."""
    return {field.name: field.default for field in dataclasses.fields(config)}


def _idle(values: Values, usual: Values) -> Iterator[tuple[str, str]]:
    """Names of changed settings that have no effect, each with the reason."""
    for names, is_idle, why in RULES:
        if is_idle(values):
            yield from ((name, why) for name in names if not _same(values[name], usual[name]))


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same; YAML and JSON have lists instead of tuples."""
    one, other = (tuple(value) if isinstance(value, list) else value for value in (one, other))
    return bool(one == other)
