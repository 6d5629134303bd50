"""PARITY: the details an RLHF-PPO must get right. ``test_parity_NN`` covers line NN of that list."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from ppolm.advantage import AdvantageComp, compute_gae_advantages, compute_td_errors
from ppolm.advantage.gae_advantage import gae
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.config import PPOConfig
from ppolm.experience_buffer import BatchedData
from ppolm.models.scalar_head import ScalarHead
from ppolm.ppo_trainer import PPOTrainer
from ppolm.reward_kl import add_kl_to_sa_pairs, adjust_rewards_with_kl
from ppolm.reward_kl.kl_controller import adapt_kl_coef
from ppolm.reward_kl.whitening import whiten
from ppolm.rollout import kv_sampler, slot_sampler
from ppolm.rollout.sampling import Sampled, Sampling
from ppolm.token_attribution import SAPairs, from_dicts
from ppolm.training.schedule import learning_rate_factor
from ppolm.training.value_loss import value_loss
from tests.closeness import assert_rounding, near
from tests.conftest import PROMPTS, ROOT, spread
from tests.sft_adapter import make_sft_adapter
from tests.table_cases import full_table
from tests.tiny_models import EOS, make_tokenizer

MakeConfig = Callable[..., PPOConfig]


def rollout(trainer: PPOTrainer, prompts: list[str] = PROMPTS[:4]) -> SAPairs:
    return trainer.sequence_generator.generate_sequences(prompts)[0]


def plain_hidden(folder: str, ids: Tensor) -> Tensor:
    """Last hidden states of one unpadded sequence from the plain library model."""
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
    for budget in (1, 60, 100_000):  # each alone; some together; all together
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
    # Bytes that are no valid UTF-8: decoding gives replacement characters, which encode to other tokens.
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
        # The first row meets EOS at its third token; the second row never does.
        return torch.tensor([next(letters), 45])[-len(logits) :], torch.zeros(len(logits))

    trainer.generator.generate(PROMPTS[:1])  # tries the model out
    monkeypatch.setattr(slot_sampler, "choose_unchecked", choose)
    pairs = trainer.ppo_step(PROMPTS[:1] * 2)["sa_pairs"]
    assert [ids.tolist() for ids in pairs.per_sequence("action_id")] == [[40, 41, EOS], [45] * 6]
    assert pairs.ended.tolist() == [True, False]
    assert "<eos>" not in scored[0]
    assert len(scored[0]) == 2
    assert pairs.per_sequence("score")[0].tolist() == [0, 0, 0]
    assert pairs.per_sequence("score")[1].tolist() == [0, 0, 0, 0, 0, -3]


ROWS = [
    {"prompt_idx": 0, "step": 0, "logprob_policy": -1.0, "logprob_ref": -1.5},
    {"prompt_idx": 0, "step": 1, "logprob_policy": -2.0, "logprob_ref": -1.0},
    {"prompt_idx": 1, "step": 0, "logprob_policy": -0.5, "logprob_ref": -0.5},
]


def test_parity_07_token_reward_is_minus_beta_kl_plus_the_score_at_the_last_token() -> None:
    pairs = adjust_rewards_with_kl(add_kl_to_sa_pairs(from_dicts(ROWS)), [2.0, 3.0], kl_coef=0.1)
    torch.testing.assert_close(pairs.column("reward"), torch.tensor([-0.05, 2.1, 3.0]))


def test_parity_08_the_score_sits_on_the_last_action_token_and_lambda_discounts_from_there() -> None:
    rows = [{"step": t, "kl": 0.0, "value": 0.0} for t in range(4)]
    pairs = adjust_rewards_with_kl(rows, [1.0], kl_coef=0.1)
    assert pairs.column("reward").tolist() == [0, 0, 0, 1]
    advantage = compute_gae_advantages(pairs, gamma=0.9, lam=0.5).column("advantage")
    torch.testing.assert_close(advantage, torch.tensor([0.45**3, 0.45**2, 0.45, 1.0]))


def test_parity_09_nothing_after_eos_contributes_to_anything(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch in which one response ended early has exactly the rows, KL, loss and metrics of its real tokens."""
    config = make_config(ppo_epochs=1, minibatch_size=4, whiten_advantages=False, without=("slot_sampler",))
    trainer = PPOTrainer(config, reward=spread)
    real = kv_sampler.choose_tokens

    def choose(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
        tokens, logprobs = real(logits, uniforms, sampling)
        tokens[0] = EOS  # the first response ends at once; later steps only pad it
        return tokens, logprobs

    monkeypatch.setattr(kv_sampler, "choose_tokens", choose)
    pairs = full_table(trainer, PROMPTS[:1] * 4)
    assert pairs.lengths.tolist() == [1, 6, 6, 6]
    assert {name: len(values) for name, values in pairs.columns.items()} == dict.fromkeys(pairs.columns, 19)
    parts = [full_loss(trainer, pairs.select([i])) for i in range(4)]
    expected = sum(loss * length for loss, length in zip(parts, [1, 6, 6, 6], strict=True)) / 19
    assert full_loss(trainer, pairs) == near(expected)


def full_loss(trainer: PPOTrainer, pairs: SAPairs) -> float:
    """The policy loss of a table, with the policy put back as it was."""
    before = {name: value.clone() for name, value in trainer.models.policy.parameters().items()}
    loss = trainer.model_trainer.train_step(pairs)[0]
    with torch.no_grad():
        for name, value in trainer.models.policy.parameters().items():
            value.copy_(before[name])
    return loss


def test_parity_10_whitening_matches_the_worked_example() -> None:
    numbers = torch.tensor([1.2, 1.4, 1.6, 1.8, 2.0])  # mean 1.6, biased variance 0.08
    centred = torch.tensor([-math.sqrt(2), -math.sqrt(0.5), 0.0, math.sqrt(0.5), math.sqrt(2)])
    torch.testing.assert_close(whiten(numbers, keep_mean=False), centred, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(whiten(numbers, keep_mean=True), centred + 1.6, rtol=1e-5, atol=1e-6)


def test_parity_10_rewards_keep_their_mean_advantages_are_centred_after_gae_returns_are_untouched(
    make_config: MakeConfig,
) -> None:
    rows = [{"step": t % 3, "kl": 0.1 * t, "value": 0.3 * t} for t in range(6)]
    plain = adjust_rewards_with_kl(rows, [1.0, 2.0], 0.5)
    white = adjust_rewards_with_kl(rows, [1.0, 2.0], 0.5, whiten_rewards=True)
    assert float(white.column("reward").mean()) == pytest.approx(float(plain.column("reward").mean()), abs=1e-6)
    assert float(white.column("reward").var(correction=0)) == pytest.approx(1, abs=1e-4)
    raw = AdvantageComp(0.9, 0.8).add_advantages(plain)
    whitened = AdvantageComp(0.9, 0.8, whiten_advantages=True).add_advantages(plain)
    torch.testing.assert_close(whitened.column("advantage"), whiten(raw.column("advantage"), keep_mean=False))
    assert torch.equal(whitened.column("return"), raw.column("return"))
    torch.testing.assert_close(raw.column("return"), raw.column("advantage") + raw.column("value"))


@st.composite
def ragged(draw: st.DrawFn) -> tuple[list[int], np.ndarray, np.ndarray]:
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    return lengths, random.normal(size=sum(lengths)), random.normal(size=sum(lengths))


@given(ragged(), st.floats(0, 1), st.floats(0, 1))
def test_parity_11_gae_equals_a_slow_loop_on_ragged_input(
    data: tuple[list[int], np.ndarray, np.ndarray], gamma: float, lam: float
) -> None:
    lengths, rewards, values = data
    expected, start = [], 0
    for length in lengths:
        advantages, following, next_value = np.zeros(length), 0.0, 0.0
        for t in reversed(range(length)):
            delta = rewards[start + t] + gamma * next_value - values[start + t]
            following = delta + gamma * lam * following
            next_value, advantages[t] = values[start + t], following
        expected.append(advantages)
        start += length
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    ours, returns = gae(torch.tensor(rewards), torch.tensor(values), offsets, gamma, lam)
    np.testing.assert_allclose(ours.numpy(), np.concatenate(expected), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(returns.numpy(), np.concatenate(expected) + values, rtol=1e-5, atol=1e-5)


@given(ragged())
def test_parity_11_lambda_0_is_the_td_error_and_lambda_1_is_return_minus_value(
    data: tuple[list[int], np.ndarray, np.ndarray],
) -> None:
    lengths, rewards, values = data
    steps = [t for length in lengths for t in range(length)]
    rows = [
        {"step": s, "reward": r, "value": v} for s, r, v in zip(steps, rewards.tolist(), values.tolist(), strict=True)
    ]
    pairs = compute_td_errors(rows, gamma=0.9)
    torch.testing.assert_close(compute_gae_advantages(pairs, 0.9, 0.0).column("advantage"), pairs.column("td_error"))
    ends = torch.tensor(np.cumsum(lengths)) - 1
    last = pairs.column("td_error")[ends]  # terminal V = 0: only reward minus value is left
    torch.testing.assert_close(last, (pairs.column("reward") - pairs.column("value"))[ends])
    monte_carlo = torch.cat([part.flip(0).cumsum(0).flip(0) for part in torch.tensor(rewards).split(lengths)])
    advantage = compute_gae_advantages(pairs, 1.0, 1.0).column("advantage")
    assert_rounding(advantage, (monte_carlo - torch.tensor(values)).float())


def test_parity_12_value_loss_is_half_the_larger_square_when_clipped_and_mse_when_not() -> None:
    value, target, old = torch.tensor([1.0, 0.0, 0.05]), torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0.0, 0.0, 0.0])
    torch.testing.assert_close(value_loss(value, target, old), torch.tensor([1.0, 1.0, 0.0025]))
    # clip 0.2: values become 0.2, 0, 0.05; squares 3.24, 1, 0.0025; the larger of each with the plain square, halved
    torch.testing.assert_close(value_loss(value, target, old, clip=0.2), torch.tensor([1.62, 0.5, 0.00125]))


def test_parity_13_reward_head_has_variance_one_over_d_plus_one_and_value_head_is_zero(make_config: MakeConfig) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = ScalarHead(20_000, torch.device("cpu"))
        head.init_reward()
    assert float(head.linear.weight.detach().var()) == pytest.approx(1 / 20_001, rel=0.05)
    assert float(head.linear.bias.detach()) == 0
    models = setup_models(make_config())
    assert all(not value.any() for value in models.value.head.parameters())


def test_parity_13_value_model_can_start_as_a_copy_of_the_reward_model(make_config: MakeConfig) -> None:
    models = setup_models(make_config(value_init="reward"))
    assert models.reward is not None
    mine, theirs = models.value.parameters(), models.reward.parameters()
    assert len(mine) == len(theirs)
    for name, value in mine.items():
        assert torch.equal(value, theirs[name.replace(".value.", ".reward.")])
    assert bool(models.value.head.linear.weight.any())


def test_parity_14_reward_normalisation_is_saved_with_the_model(make_config: MakeConfig, tmp_path: Path) -> None:
    models = setup_models(make_config())
    reward = models.reward
    assert reward is not None
    responses = ["one", "two words", "three more words"]
    raw = torch.tensor(reward(PROMPTS[:3], responses))
    reward.mean, reward.std = float(raw.mean()), float(raw.std())
    normalised = reward(PROMPTS[:3], responses)
    assert sum(normalised) / 3 == pytest.approx(0, abs=1e-5)  # mean 0 over the reference responses
    reward.save(tmp_path / "reward")
    again = setup_models(make_config(reward_model=str(tmp_path / "reward"))).reward
    assert again is not None
    assert again.trained
    assert again(PROMPTS[:3], responses) == pytest.approx(normalised, rel=1e-6)


def test_parity_15_dropout_is_off_in_all_four_roles_while_training(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(lora_dropout=0.5))
    pairs = full_table(trainer)
    dropouts = [m for m in trainer.models.adapters.model.modules() if isinstance(m, nn.Dropout)]
    assert any(dropout.p == 0.5 for dropout in dropouts)
    trainer.model_trainer.train_step(pairs)
    for role in (trainer.models.policy, trainer.models.sft, trainer.models.value, trainer.models.reward):
        assert role is not None
        with role.active(trainable=role in (trainer.models.policy, trainer.models.value)):
            assert not any(module.training for module in trainer.models.adapters.model.modules())
    first, second = (trainer.models.policy.logprobs(pairs.sequences, 1.0, 2048) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("with_sft", [False, True])
def test_parity_16_reference_equals_policy_at_step_0_so_kl_is_exactly_0(
    make_config: MakeConfig, tmp_path: Path, with_sft: bool
) -> None:
    sft = str(make_sft_adapter(make_config(), tmp_path / "sft")) if with_sft else None
    trainer = PPOTrainer(make_config(sft_adapter=sft))
    pairs = add_kl_to_sa_pairs(rollout(trainer, PROMPTS))
    assert not pairs.column("kl").any()
    if with_sft:  # and the reference really is the SFT model, not the base
        trainer.models.adapters.activate(None)
        bare = PPOTrainer(make_config()).models.policy.logprobs(pairs.sequences, 1.0, 2048)
        assert float((bare - pairs.column("logprob_ref")).abs().max()) > 0.01


@pytest.mark.parametrize("with_sft", [False, True])
def test_parity_17_first_minibatch_has_ratio_1_clip_fraction_0_and_approx_kl_0(
    make_config: MakeConfig, tmp_path: Path, with_sft: bool
) -> None:
    sft = str(make_sft_adapter(make_config(), tmp_path / "sft")) if with_sft else None
    trainer = PPOTrainer(make_config(sft_adapter=sft, ppo_epochs=1, minibatch_size=4))
    metrics = trainer.model_trainer.train_policy_model(full_table(trainer)).metrics
    assert metrics["ratio"] == near(1)
    assert metrics["clip_fraction"] == 0
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-7)


def test_parity_18_adaptive_beta_follows_the_formula_with_kl_summed_per_sequence(make_config: MakeConfig) -> None:
    assert adapt_kl_coef(0.1, kl=6.6, target=6.0, num_sequences=64, horizon=10_000) == pytest.approx(
        0.1 * (1 + 0.1 * 0.0064)
    )
    assert adapt_kl_coef(0.1, kl=60.0, target=6.0, num_sequences=64, horizon=10_000) == pytest.approx(
        0.1 * (1 + 0.2 * 0.0064)
    )
    assert adapt_kl_coef(0.1, kl=0.0, target=6.0, num_sequences=64, horizon=10_000) == pytest.approx(
        0.1 * (1 - 0.2 * 0.0064)
    )
    trainer = PPOTrainer(make_config(adaptive_kl=True, kl_target=0.5, kl_horizon=10), reward=spread)
    trainer.ppo_step(PROMPTS[:4])
    beta = trainer.kl.coef
    results = trainer.ppo_step(PROMPTS[:4])
    pairs = results["sa_pairs"]
    summed = (pairs.column("logprob_policy") - pairs.column("logprob_ref")).double().sum() / 4
    assert results["metrics"]["kl"] == pytest.approx(float(summed))
    assert trainer.kl.coef == pytest.approx(adapt_kl_coef(beta, float(summed), 0.5, 4, 10))


@given(
    kl=st.floats(-100, 1e6), target=st.floats(1e-3, 100), sequences=st.integers(1, 4096), horizon=st.integers(1, 4096)
)
def test_parity_18_a_penalty_never_becomes_a_bonus_however_short_the_horizon(
    kl: float, target: float, sequences: int, horizon: int
) -> None:
    beta = adapt_kl_coef(0.1, kl, target, sequences, horizon)
    assert beta * (1 + 1e-12) >= 0.1 * 0.8
    assert beta <= 0.1 * 1.2 * (1 + 1e-12)
    if sequences <= horizon:
        clipped = float(np.clip(kl / target - 1, -0.2, 0.2))
        assert beta == pytest.approx(0.1 * (1 + clipped * sequences / horizon), rel=1e-12)


def test_parity_18_a_step_of_more_sequences_than_the_horizon_counts_as_one_horizon() -> None:
    assert adapt_kl_coef(0.1, kl=0.0, target=6.0, num_sequences=64, horizon=10) == pytest.approx(0.08)
    assert adapt_kl_coef(0.1, kl=60.0, target=6.0, num_sequences=64, horizon=10) == pytest.approx(0.12)


def test_parity_19_adam_epsilon_is_1e_5_and_the_schedule_is_as_documented(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(lr_schedule="linear", learning_rate=1.0, warmup_steps=2))
    for updater in (trainer.model_trainer.policy_updater, trainer.model_trainer.value_updater):
        assert updater.optimizer.param_groups[0]["eps"] == 1e-5
    rates = []
    for step in range(6):
        trainer.model_trainer.set_step(step, 6)
        rates.append(trainer.model_trainer.policy_updater.learning_rate)
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.5, 0.25])
    assert learning_rate_factor(4, 6, "cosine", 2) == pytest.approx(0.5)
    assert learning_rate_factor(4, 6, "constant", 2) == 1


def test_parity_20_every_ppo_epoch_sees_a_fresh_permutation(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(), reward=spread)
    data = BatchedData(full_table(trainer, PROMPTS))
    random = torch.Generator().manual_seed(0)
    epochs = [
        [batch.column("prompt_idx")[0].item() for batch in data.minibatches(1, "shuffled", random)] for _ in range(4)
    ]
    assert all(sorted(epoch) == list(range(6)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


@pytest.mark.parametrize("kind", ["policy", "value"])
def test_parity_20_gradient_does_not_depend_on_microbatching(make_config: MakeConfig, kind: str) -> None:
    gradients = []
    prompts = [*PROMPTS, "Here is one that is a good deal longer than the others:"]
    for budget in (1, 70, 100_000):
        config = make_config(microbatch_tokens=budget, entropy_coef=0.1, kl_placement="loss", kl_estimator="k3")
        trainer = PPOTrainer(config, reward=spread)
        pairs = full_table(trainer, prompts)
        updater = trainer.model_trainer.policy_updater if kind == "policy" else trainer.model_trainer.value_updater
        caught: list[Tensor] = []
        updater.optimizer.step = lambda caught=caught, updater=updater: caught.extend(  # type: ignore[method-assign, misc]
            parameter.grad.clone() for parameter in updater.parameters.values()
        )
        updater.max_grad_norm = math.inf
        trainer.model_trainer.train_step(pairs)
        gradients.append(torch.cat([gradient.flatten() for gradient in caught]))
    assert float(gradients[0].norm()) > 0
    for other in gradients[1:]:
        assert float((other - gradients[0]).norm() / gradients[0].norm()) < 1e-5


def test_parity_21_ppo_epochs_stop_when_approx_kl_exceeds_one_and_a_half_target_kl(make_config: MakeConfig) -> None:
    def updates(target_kl: float | None) -> tuple[int, float]:
        trainer = PPOTrainer(make_config(learning_rate=0.03, ppo_epochs=6, target_kl=target_kl), reward=spread)
        pairs = full_table(trainer)
        steps: list[float] = []
        step = trainer.model_trainer.policy_updater.optimizer.step

        def counted() -> None:
            steps.append(1)
            step()

        trainer.model_trainer.policy_updater.optimizer.step = counted  # type: ignore[method-assign, assignment]
        update = trainer.model_trainer.train_policy_model(pairs)
        return len(steps), update.metrics["early_stop"]

    assert updates(None) == (12, 0.0)
    stopped, flag = updates(1e-4)
    assert 1 <= stopped < 12
    assert flag == 1.0
    assert updates(1e6) == (12, 0.0)


def test_parity_22_every_metric_of_a_run_is_defined_once_in_the_glossary(make_config: MakeConfig) -> None:
    config = make_config(eval_fraction=0.3, eval_every=1, max_steps=1)
    rows: list[Any] = [{"prompt": prompt, "reference": "a cat"} for prompt in PROMPTS]
    results = PPOTrainer(config, reward={"spread": spread, "again": spread}).train(rows)
    glossary = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in glossary.splitlines() if line.startswith("| `")]
    defined = [name for cell in cells for name in re.findall("`([^`]+)`", cell)]
    names = {name.split("/")[0] for name in {**results.metrics[0], **results.evaluations[0]}}
    assert names - {entry.split("/")[0] for entry in defined} == set()
    assert len(defined) == len(set(defined))
