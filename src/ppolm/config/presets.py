"""Named sets of settings, each with its reasons. The defaults are those of the design documents, and stay."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ppolm.errors import ConfigError
from ppolm.messages import brief


@dataclass(frozen=True)
class Preset:
    """Settings that go together."""

    about: str
    """For what, in a sentence."""
    values: Mapping[str, Any]
    reasons: Mapping[str, str]
    """Why each value, in a few words: every value has one."""


_PPO_FOR_LORA: dict[str, tuple[Any, str]] = {
    "value_learning_rate": (2e-4, "the value model starts from nothing and has to keep up"),
    "warmup_steps": (5, "Adam's first steps are its least reliable"),
    "value_warmup_steps": (2, "advantages of an untrained value model are the raw rewards: let it learn first"),
    "gamma": (1.0, "a response is short and its score comes at the end: the first token matters as much"),
    "kl_coef": (0.05, "with normalised scores, a nat costs a twentieth of a standard deviation"),
    "ppo_epochs": (2, "with LoRA rates, more passes move the policy further than the clip range"),
    "normalize_rewards": ("running", "the scale of scores does not jump with each batch"),
    "missing_eos_penalty": (1.0, "a response that was cut off is worth a standard deviation less"),
    "max_new_tokens": (64, "room for an answer; the default of 10 is for the documents' examples"),
    "top_k": (0, "draw from what is scored: top-k would hide tokens that the policy likes"),
    "top_p": (1.0, "the same for top-p"),
}
PRESETS: dict[str, Preset] = {}


def _add(name: str, about: str, settings: Mapping[str, tuple[Any, str]]) -> None:
    values = {key: value for key, (value, _) in settings.items()}
    PRESETS[name] = Preset(about, values, {key: reason for key, (_, reason) in settings.items()})


_add(
    "lora-small",
    "LoRA on models up to about 2 billion parameters.",
    {"learning_rate": (1e-4, "adapters want about ten times the rate of full training")}
    | _PPO_FOR_LORA
    | {
        "batch_size": (64, "small models sample cheaply, and gradients of few responses are noise"),
        "minibatch_size": (16, "four updates per pass"),
    },
)
_add(
    "lora-large",
    "LoRA on models of more than 2 billion parameters.",
    {"learning_rate": (3e-5, "larger models change more per step")}
    | _PPO_FOR_LORA
    | {
        "batch_size": (64, "gradients of few responses are noise"),
        "minibatch_size": (32, "two updates per pass: fewer, better ones"),
        "microbatch_tokens": (4096, "a GPU that holds such a model computes larger passes better"),
    },
)
_add(
    "demo",
    "What `ppolm demo` uses: a tiny model, two minutes.",
    {"learning_rate": (6e-4, "a model of a million parameters; far too much for a real one")}
    | {
        name: one
        for name, one in _PPO_FOR_LORA.items()
        if name not in ("warmup_steps", "value_warmup_steps", "kl_coef")
    }
    | {
        "value_learning_rate": (1e-3, "the same"),
        "lora_r": (8, "matrices of the embedded model have 128 rows"),
        "lora_alpha": (16, "twice the rank, as usual"),
        "batch_size": (48, "a step takes two seconds"),
        "minibatch_size": (24, "two updates per pass"),
        "max_new_tokens": (48, "its summaries have about twenty tokens"),
        "microbatch_tokens": (8192, "all responses in one pass"),
        "max_eval_prompts": (96, "intervals that say something"),
    },
)
_add("documents", "The values of the design documents, which are the defaults.", {})


def preset_values(name: str) -> dict[str, Any]:
    """The settings of a preset."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name[:50], PRESETS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigError(f"There is no preset {brief(name)}. There are {', '.join(PRESETS)}.{hint}")
    return dict(PRESETS[name].values)
