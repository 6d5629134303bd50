"""The defaults that flags override: a YAML file, a resumed run, or the recipe of the embedded model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from ppolm.config import PPOConfig
from ppolm.embedded import RECIPES
from ppolm.names import EMBEDDED

HELP = ("-h", "--help")


@dataclass(frozen=True)
class Given:
    """The flags that determine the defaults of the others."""

    config: str | None = None
    resume: str | None = None
    model_name: str | None = None
    prompts: str | None = None
    eval_every: int | None = None
    preset: str | None = None
    start_from: str | None = None

    @property
    def own_prompts(self) -> bool:
        """Whether the given prompts come from outside the embedded world."""
        return self.prompts is not None and self.prompts.partition(":")[0] != EMBEDDED


def read_given(argv: Sequence[str]) -> Given:
    """Parsed by tyro, as all flags are afterwards, so that both accept the same spellings."""
    words = [word for word in argv if word not in HELP]  # --help shows the defaults that are decided here
    return tyro.cli(Given, args=words, return_unknown_args=True)[0]


TASK = ("model_name", "reward", "judge", "prompts", "eval_prompts", "max_steps")
"""Settings of the recipe that say what is trained on, not how: a preset leaves them."""


def train_recipe(given: Given) -> PPOConfig:
    """The demo's settings for the embedded model, without those that do not fit the given flags."""
    settings = PPOConfig.from_yaml(RECIPES["ppolm train"])
    if given.preset is not None:
        settings = PPOConfig.from_preset(given.preset, **{name: getattr(settings, name) for name in TASK})
    if given.own_prompts:  # the recipe's evaluation posts and judge are for the embedded world only
        settings = settings.changed(prompts=None, eval_prompts=None, judge=None)
    if given.eval_every == 0:  # without evaluations the recipe's judge would have no effect
        settings = settings.changed(eval_every=0)
    return settings


def recipe_note(given: Given, config: PPOConfig) -> str:
    """How a user's own prompts are evaluated on the embedded model, since most of the recipe is for its own posts."""
    parts = []
    if config.eval_every and config.eval_prompts is None:
        parts.append(f"{config.eval_fraction:.0%} of them are held out (not embedded:validation)")
    if config.judge is None:
        parts.append("no judge (gold knows that world alone)")
    if "model" in config.reward and not config.reward_model:
        parts.append("scores by the embedded reward model, which learned from that world (--reward names another)")
    return f"note: {given.prompts} is not from the embedded world: {'; '.join(parts)}." if parts else ""
