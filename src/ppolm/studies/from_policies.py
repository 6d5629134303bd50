"""Items of a study by sampling: two policies on the same prompts, or one policy several times."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from itertools import combinations

from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
from ppolm.data.prompts import Prompt
from ppolm.engines.build_engine import build_engine, release_engine
from ppolm.errors import ConfigError
from ppolm.feedback.record import Source
from ppolm.feedback.study import Ask, Item
from ppolm.models import PolicyModel
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from ppolm.storage.prompt_record import read_held_out, read_trained_on
from ppolm.studies.policy import Policy

PROMPTS_AT_ONCE = 32
Tick = Callable[[], object]


def from_policies(
    policies: Sequence[Policy], prompts: Sequence[Prompt], ask: Ask, seed: int = 0, tick: Tick = lambda: None
) -> list[Item]:
    """An answer of each policy to each prompt, each policy with random numbers of its own."""
    answers = [sample(policy, prompts, 1, seed + number, tick) for number, policy in enumerate(policies)]
    sources = [policy.source for policy in policies]
    by_prompt = zip(prompts, *answers, strict=True)
    return [
        item for prompt, *texts in by_prompt for item in items_of(prompt, [text for (text,) in texts], sources, ask)
    ]


def from_policy(
    policy: Policy, prompts: Sequence[Prompt], samples: int, ask: Ask, seed: int = 0, tick: Tick = lambda: None
) -> list[Item]:
    """Several answers of one policy to each prompt: every two of them, or each by itself."""
    answers = sample(policy, prompts, samples, seed, tick)
    sources = [dataclasses.replace(policy.source, sequence=number) for number in range(samples)]
    return [
        item for prompt, texts in zip(prompts, answers, strict=True) for item in items_of(prompt, texts, sources, ask)
    ]


def items_of(prompt: Prompt, texts: Sequence[str], sources: Sequence[Source], ask: Ask) -> list[Item]:
    """Every two answers to a prompt, or each of them by itself."""
    made = list(zip(texts, sources, strict=True))
    groups = combinations(made, 2) if ask == "preference" else ((one,) for one in made)
    return [
        Item(prompt.content, tuple(text for text, _ in group), tuple(source for _, source in group)) for group in groups
    ]


def sample(
    policy: Policy, prompts: Sequence[Prompt], samples: int, seed: int, tick: Tick = lambda: None
) -> list[list[str]]:
    """Answers to each prompt, sampled with the settings of the policy's run."""
    config = policy.config
    adapters = AdapterSet(BaseModelSetup(config))
    adapter = policy.adapter or config.reference_adapter
    if adapter is None:
        adapters.create("policy", new_lora_config(config, adapters.setup.causal_lm))  # a new adapter changes nothing
    else:
        adapters.load("policy", adapter)
    engine = build_engine(config, PolicyModel(adapters))
    generator = Generator(engine, adapters.setup, Sampling.of(config), seed, samples)
    texts: list[str] = []
    try:
        for start in range(0, len(prompts), PROMPTS_AT_ONCE):
            texts += map(str, generator.generate(list(prompts[start : start + PROMPTS_AT_ONCE]))[0])
            tick()
    finally:
        release_engine(engine)
    return [texts[start : start + samples] for start in range(0, len(texts), samples)]


def fair_prompts(policies: Sequence[Policy], given: Sequence[Prompt] | None = None) -> tuple[list[Prompt], int]:
    """The prompts to compare policies on, and how many were left out.

    Without ``given`` those that the first run held out, except those that another of the runs was trained on.
    """
    if given is not None:
        return list(given), 0
    runs = [policy.run for policy in policies if policy.run is not None]
    if not runs:
        raise ConfigError("A model that no run has trained holds out no prompts. Give --prompts.")
    held_out = read_held_out(runs[0])
    seen = {key for run in runs for key in read_trained_on(run)}
    fair = [prompt for prompt in held_out if prompt.key not in seen]
    if not fair:
        why = "was trained on all of those of the first" if held_out else "held out no prompts"
        raise ConfigError(f"There are no prompts to compare on: a run {why}. Give --prompts.")
    return fair, len(held_out) - len(fair)


def some_of(prompts: Sequence[Prompt], count: int | None, seed: int) -> list[Prompt]:
    """``count`` prompts drawn by the seed, in their order; all of them, if there are no more."""
    if count is None or count >= len(prompts):
        return list(prompts)
    return [prompts[i] for i in sorted(random.Random(seed).sample(range(len(prompts)), count))]
