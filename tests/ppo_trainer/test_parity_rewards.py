"""PARITY, rewards and KL: ``test_parity_NN`` covers line NN of the list of details an RLHF-PPO must get right."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ppolm.advantage import AdvantageComp
from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from ppolm.reward_kl import add_kl_to_sa_pairs, adjust_rewards_with_kl
from ppolm.reward_kl.kl_controller import adapt_kl_coef
from ppolm.reward_kl.whitening import whiten
from ppolm.token_attribution import SAPairs, from_dicts
from tests.conftest import PROMPTS, spread
from tests.sft_adapter import make_sft_adapter

MakeConfig = Callable[..., PPOConfig]


def rollout(trainer: PPOTrainer, prompts: list[str] = PROMPTS[:4]) -> SAPairs:
    return trainer.sequence_generator.generate_sequences(prompts)[0]


ROWS = [
    {"prompt_idx": 0, "step": 0, "logprob_policy": -1.0, "logprob_ref": -1.5},
    {"prompt_idx": 0, "step": 1, "logprob_policy": -2.0, "logprob_ref": -1.0},
    {"prompt_idx": 1, "step": 0, "logprob_policy": -0.5, "logprob_ref": -0.5},
]


def test_parity_07_token_reward_is_minus_beta_kl_plus_the_score_at_the_last_token() -> None:
    pairs = adjust_rewards_with_kl(add_kl_to_sa_pairs(from_dicts(ROWS)), [2.0, 3.0], kl_coef=0.1)
    torch.testing.assert_close(pairs.column("reward"), torch.tensor([-0.05, 2.1, 3.0]))


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
