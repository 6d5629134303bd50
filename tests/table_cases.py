"""Tables shared by the tests: generated ones, small ones, and those of the design documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.generator import SequenceGenerator
from ppolm.reward_kl import add_kl_to_sa_pairs, adjust_rewards_with_kl
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from ppolm.token_attribution import SAPairs
from ppolm.token_attribution.token_attribution import TokenAttributor
from tests.conftest import PROMPTS
from tests.tiny_models import EOS

# As in the design documents: the space before "I" is in the state, not in the action.
DOCUMENT_PAIRS: list[dict[str, Any]] = [
    {
        "state": "SUBREDDIT: r/relationships\nTITLE: Should I admit to snooping?",
        "action": "I",
        "logprob_policy": -2.1,
        "logprob_ref": -2.5,
    },
    {
        "state": "SUBREDDIT: r/relationships\nTITLE: Should I admit to snooping? I",
        "action": " think",
        "logprob_policy": -1.8,
        "logprob_ref": -2.2,
    },
    {
        "state": "SUBREDDIT: r/relationships\nTITLE: Should I admit to snooping? I think",
        "action": " so",
        "logprob_policy": -0.5,
        "logprob_ref": -0.25,
    },
]


def bias_logits(models: Models, bias: dict[int, float], others: float = 0.0) -> None:
    """Add a bias to the logits of some tokens, in the model itself."""
    added = torch.full((models.setup.text_config.vocab_size,), others)
    for token, amount in bias.items():
        added[token] = amount
    models.setup.causal_lm.get_output_embeddings().register_forward_hook(
        lambda _module, _inputs, logits: logits + added
    )


def speak_ascii(models: Models, eos_bonus: float) -> None:
    """Restrict the random model to printable ASCII and EOS: each byte is then a character, as in real text."""
    printable = models.setup.tokenizer.encode("".join(map(chr, range(32, 127))))
    bias_logits(models, {**dict.fromkeys(printable, 0.0), EOS: eos_bonus}, others=-torch.inf)


def rollout(
    models: Models, prompts: Sequence[Any], sampling: Sampling, samples: int
) -> tuple[SAPairs, list[GeneratedText]]:
    generator = Generator(models.policy, models.setup, sampling, seed=3, samples_per_prompt=samples)
    return SequenceGenerator(
        generator, TokenAttributor(models.policy, models.sft, 1.0, 512, recompute_logprobs="always")
    ).generate_sequences(prompts)


@pytest.fixture(scope="module")
def speaking_models(model_folder: Path) -> Models:
    """A policy that differs from its reference and ends some of its responses."""
    models = setup_models(PPOConfig(model_name=str(model_folder), lora_r=4, lora_alpha=8, device="cpu"))
    speak_ascii(models, eos_bonus=2.5)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in models.policy.parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=random) * 0.2)
    return models


@pytest.fixture(scope="module")
def generated(speaking_models: Models) -> tuple[SAPairs, list[GeneratedText]]:
    return rollout(speaking_models, PROMPTS, Sampling(max_new_tokens=8), samples=2)


@pytest.fixture(scope="module")
def pairs(generated: tuple[SAPairs, list[GeneratedText]]) -> SAPairs:
    return generated[0]


@pytest.fixture
def small() -> SAPairs:
    """Two sequences, of three and two actions, without text."""
    return SAPairs(
        columns={
            "prompt_idx": torch.tensor([0, 0, 0, 1, 1]),
            "step": torch.tensor([0, 1, 2, 0, 1]),
            "action_id": torch.tensor([10, 11, 12, 20, 21]),
            "logprob_policy": torch.tensor([-1.0, -2.0, -3.0, -4.0, -5.0]),
            "logprob_ref": torch.tensor([-1.5, -1.5, -1.5, -1.5, -1.5]),
        },
        offsets=torch.tensor([0, 3, 5]),
        ended=torch.tensor([True, False]),
        prompts=[[5, 6], [7]],
    )


def snapshot(pairs: SAPairs) -> dict[str, Tensor]:
    return {name: values.clone() for name, values in pairs.columns.items()}


def assert_unchanged(pairs: SAPairs, before: dict[str, Tensor]) -> None:
    assert list(pairs.columns) == list(before)
    assert all(torch.equal(pairs.columns[name], values) for name, values in before.items())


def assert_same_table(left: SAPairs, right: SAPairs) -> None:
    assert list(left.columns) == list(right.columns)
    for name, values in left.columns.items():
        assert right.columns[name].dtype == values.dtype, name
        assert torch.equal(right.columns[name], values), name
    assert torch.equal(left.offsets, right.offsets)
    assert torch.equal(left.ended, right.ended)
    assert [list(ids) for ids in left.prompts] == [list(ids) for ids in right.prompts]


def full_table(trainer: PPOTrainer, prompts: list[str] = PROMPTS[:4]) -> SAPairs:
    """A complete table, ready for training."""
    pairs, texts = trainer.sequence_generator.generate_sequences(prompts)
    pairs = add_kl_to_sa_pairs(pairs)
    pairs = adjust_rewards_with_kl(pairs, trainer.reward_computer.compute_rewards(prompts, texts), 0.1)
    return trainer.advantage_comp.add_advantages(trainer.value_adder.add_values_to_sa_pairs(pairs))
