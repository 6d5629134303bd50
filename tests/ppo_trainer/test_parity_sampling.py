"""PARITY, sampling and scoring: ``test_parity_NN`` covers line NN of the list of details an RLHF-PPO must get right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rollout import kv_sampler, slot_sampler
from ppolm.rollout.sampling import Sampled, Sampling
from tests.closeness import assert_rounding, near
from tests.conftest import PROMPTS, spread
from tests.table_cases import full_table
from tests.tiny_models import EOS, make_tokenizer

MakeConfig = Callable[..., PPOConfig]


def plain_hidden(folder: str, ids: Tensor) -> Tensor:
    """Last hidden states of one unpadded sequence from the plain transformers model."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(ids[None], output_hidden_states=True).hidden_states[-1][0]


def test_parity_01_temperature_divides_logits_in_policy_reference_and_update_alike(make_config: MakeConfig) -> None:
    config = make_config(temperature=0.6, ppo_epochs=1, minibatch_size=4, recompute_logprobs="never")
    trainer = PPOTrainer(config, reward=spread)
    pairs = full_table(trainer)
    model = AutoModelForCausalLM.from_pretrained(config.model_name).eval()
    sequences = pairs.sequences
    for i, (context, actions) in enumerate(zip(sequences.contexts, sequences.actions, strict=True)):
        with torch.no_grad():
            logits = model(torch.cat([context, actions])[None]).logits[0, len(context) - 1 : -1]
        expected = (logits / 0.6).log_softmax(-1).gather(-1, actions[:, None])[:, 0]
        assert_rounding(pairs.per_sequence("logprob_policy")[i], expected)
        assert_rounding(pairs.per_sequence("logprob_ref")[i], expected)
    update = trainer.model_trainer.train_policy_model(pairs)  # at the same temperature: nothing has moved yet
    assert update.metrics["ratio"] == near(1)


def test_parity_02_value_is_read_at_context_minus_1_plus_t_and_reward_at_the_last_token(
    make_config: MakeConfig,
) -> None:
    config = make_config()
    models = setup_models(config)
    nn.init.normal_(models.value.head.linear.weight)
    trainer = PPOTrainer(config, models=models)
    pairs, texts = trainer.sequence_generator.generate_sequences(PROMPTS[:3])
    values = trainer.value_adder.add_values_to_sa_pairs(pairs).per_sequence("value")
    rewards = trainer.reward_computer.compute_rewards(PROMPTS[:3], texts)
    assert models.reward is not None
    for i, text in enumerate(texts):
        # New adapters change nothing, so the plain base gives the hidden states that the heads read.
        hidden = plain_hidden(config.model_name, torch.tensor(text.prompt_ids + text.token_ids))
        states = hidden[len(text.prompt_ids) - 1 : -1]
        assert_rounding(values[i], models.value.head(states))
        assert rewards[i] == near(float(models.reward.head(hidden[-1:])))


def test_parity_03_pad_is_never_eos_and_queries_are_left_padded() -> None:
    tokenizer = make_tokenizer(pad_token="<eos>")
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == EOS
    setup = TokenizerSetup(tokenizer, vocab_size=259)
    assert setup.pad_id not in setup.eos_ids
    ids, mask = kv_sampler.left_pad([[5, 6, 7], [8]], setup.pad_id, torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 7], [setup.pad_id, setup.pad_id, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


def test_parity_03_scores_do_not_depend_on_padding_or_batch_mates(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(max_new_tokens=12))
    nn.init.normal_(trainer.models.value.head.linear.weight)
    pairs, texts = trainer.sequence_generator.generate_sequences(
        [*PROMPTS, "A much longer prompt, so that all others need padding."]
    )
    for budget in (1, 60, 100_000):  # one, some, or all sequences per microbatch
        for name, model in (("policy", trainer.models.policy), ("sft", trainer.models.sft)):
            scores = model.logprobs(pairs.sequences, 1.0, budget)
            assert_rounding(scores, pairs.column("logprob_policy"), what=name)
        values = trainer.models.value.values(pairs.sequences, budget)
        assert_rounding(values, trainer.models.value.values(pairs.sequences, 2048))
    reward = trainer.models.reward
    assert reward is not None
    together = reward([text.prompt for text in texts], texts)
    alone = [reward([text.prompt], [text])[0] for text in texts]
    assert together == near(alone)


def test_parity_04_positions_follow_the_mask_not_the_padded_index(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Tensor] = []
    blocks = models.setup.blocks

    def spy(**inputs: Any) -> Any:
        seen.append(inputs["position_ids"].clone())
        return blocks(**inputs)

    short, long = list(range(10, 13)), list(range(20, 28))
    sampling, uniforms = Sampling(max_new_tokens=3), torch.full((2, 3), 0.4)
    both = models.policy.generate([short, long], sampling, uniforms)
    monkeypatch.setattr(models.setup, "blocks", spy)
    models.policy.generate([short, long], sampling, uniforms)
    assert seen[0].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]  # padded on the right, and cut where each prompt ends
    assert [positions.flatten().tolist() for positions in seen[1:]] == [[8, 3], [9, 4]]  # the longest comes first
    seen.clear()
    kv_sampler.sample_sequences(models.setup, [short, long], sampling, uniforms)
    assert seen[0].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 0, 0, 1, 2]]
    assert [positions.flatten().tolist() for positions in seen[1:]] == [[8, 3], [9, 4]]
    alone = models.policy.generate([short], Sampling(max_new_tokens=3), torch.full((1, 3), 0.4))
    assert alone[0].token_ids == both[0].token_ids
    assert alone[0].logprobs == near(both[0].logprobs)


class FixedEngine:
    """Always samples the same tokens."""

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = token_ids

    def generate(self, prompts: Any, sampling: Any, uniforms: Any) -> list[Sampled]:  # noqa: ARG002
        return [Sampled(self.token_ids, [-1.0] * len(self.token_ids), False) for _ in prompts]


def test_parity_05_training_sees_the_sampled_ids_never_reencoded_text(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(), reward=spread)
    # Not valid UTF-8: decoding gives replacement characters, which encode to other tokens.
    sampled = [195, 130, 140, 3, 200]
    trainer.generator.engine = FixedEngine(sampled)
    results = trainer.ppo_step(PROMPTS[:2])
    text = results["generated_texts"][0]
    assert trainer.models.setup.tokenizer.encode(str(text)) != sampled
    assert results["sa_pairs"].column("action_id").tolist() == sampled * 2


def test_parity_06_responses_are_cut_after_the_first_eos_scored_without_it_and_others_penalised(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[str] = []

    def reward(prompts: list[str], responses: list[str]) -> list[float]:
        scored.extend(responses)
        return [0.0] * len(responses)

    trainer = PPOTrainer(make_config(missing_eos_penalty=3.0, normalize_rewards="none", kl_coef=0.0), reward=reward)
    letters = iter([40, 41, EOS, 42, 43, 44])

    def choose(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
        # The first row ends with EOS at its third token; the second row never ends.
        return torch.tensor([next(letters), 45])[-len(logits) :], torch.zeros(len(logits))

    trainer.generator.generate(PROMPTS[:1])  # runs the trials of the fast paths
    monkeypatch.setattr(slot_sampler, "choose_unchecked", choose)
    pairs = trainer.ppo_step(PROMPTS[:1] * 2)["sa_pairs"]
    assert [ids.tolist() for ids in pairs.per_sequence("action_id")] == [[40, 41, EOS], [45] * 6]
    assert pairs.ended.tolist() == [True, False]
    assert "<eos>" not in scored[0]
    assert len(scored[0]) == 2
    assert pairs.per_sequence("score")[0].tolist() == [0, 0, 0]
    assert pairs.per_sequence("score")[1].tolist() == [0, 0, 0, 0, 0, -3]
