"""PPO learns: the held-out reward rises clearly with every seed, and KL stays bounded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from tests.tiny_models import SMALL_ALPHABET, make_model_folder


def vowels_per_token(prompts: list[str], responses: list[Any]) -> list[list[float]]:
    """1 for a vowel, 0 for any other token. Chance level is about 0.14."""
    return [[float(token in "aeiou") for token in response.tokens] for response in responses]


@pytest.fixture(scope="module")
def sharp_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights large enough that some tokens are likelier than others, so that there is something to learn."""
    return make_model_folder(tmp_path_factory.mktemp("sharp"), scale=8.0, alphabet=SMALL_ALPHABET)


@pytest.mark.parametrize("seed", range(5))
def test_held_out_token_reward_rises_in_every_seed_with_bounded_kl(
    make_config: Callable[..., PPOConfig], sharp_model: Path, seed: int
) -> None:
    config = make_config(
        model_name=str(sharp_model),
        seed=seed,
        batch_size=32,
        minibatch_size=16,
        max_new_tokens=8,
        lora_r=8,
        lora_alpha=16,
        learning_rate=5e-3,
        value_learning_rate=1e-2,
        kl_coef=0.2,
        collapse_kl=3.0,
        top_k=0,
        top_p=1.0,
        gamma=1.0,
        max_steps=14,
        num_epochs=16,
        eval_every=14,
        eval_fraction=0.5,
    )
    prompts = [f"{word} {number}" for word in ("one", "some", "any", "no") for number in range(16)]
    results = PPOTrainer(config, reward=vowels_per_token).train(prompts)
    first, last = results.evaluations[0], results.evaluations[-1]
    share = {name: row["avg_reward"] / row["response_length"] for name, row in (("first", first), ("last", last))}
    print(f"seed {seed}: {share['first']:.3f} -> {share['last']:.3f}, KL {last['kl']:.2f} per response")
    assert share["first"] < 0.2
    assert share["last"] > share["first"] + 0.2
    assert 0 < last["kl"] < 10
    assert results.verdict == "improved"
