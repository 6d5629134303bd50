"""Importance weights between the sampler and the policy: exact where nothing is cut, bounded where it is."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.step_metrics import importance_metrics
from ppolm.training.importance_weight import effective_share, importance_weights, within_sequence_cap
from tests.conftest import PROMPTS, spread


def test_weights_are_the_ratio_of_probabilities_up_to_the_cap() -> None:
    policy = torch.tensor([0.1, 0.5, 0.9, 0.3]).log()
    sampler = torch.tensor([0.2, 0.5, 0.3, 0.3]).log()
    torch.testing.assert_close(importance_weights(policy, sampler, 2.0), torch.tensor([0.5, 1.0, 2.0, 1.0]))
    torch.testing.assert_close(importance_weights(policy, sampler, 10.0), torch.tensor([0.5, 1.0, 3.0, 1.0]))


def test_weighted_samples_of_another_policy_give_the_expectation_under_ours() -> None:
    """Σ_a μ(a) w(a) f(a) = Σ_a π(a) f(a) when nothing is cut, for any f."""
    random = torch.Generator().manual_seed(0)
    ours, theirs = torch.randn(2, 50, generator=random, dtype=torch.float64).log_softmax(-1)
    f = torch.randn(50, generator=random, dtype=torch.float64)
    weights = importance_weights(ours, theirs, math.inf)
    assert float((theirs.exp() * weights * f).sum()) == pytest.approx(float((ours.exp() * f).sum()), rel=1e-12)


def test_a_sequence_that_is_too_unlikely_on_either_side_weighs_nothing() -> None:
    offsets = torch.tensor([0, 2, 3, 5])
    log_ratio = torch.tensor([0.5, 0.4, 1.2, -0.7, -0.6])
    kept = within_sequence_cap(log_ratio, torch.zeros(5), offsets, 3.0)  # log 3 is 1.0986
    assert kept.tolist() == [1, 1, 0, 0, 0]


def test_the_effective_share_is_one_for_equal_weights_and_falls_with_their_spread() -> None:
    assert effective_share(torch.full((7,), 0.3)) == pytest.approx(1)
    assert effective_share(torch.tensor([1.0, 0, 0, 0])) == pytest.approx(0.25)
    assert effective_share(torch.tensor([2.0, 1.0])) == pytest.approx(9 / 10)
    assert effective_share(torch.zeros(3)) == 0


def test_the_policy_loss_is_weighted_and_without_the_column_nothing_changes(
    make_config: Callable[..., PPOConfig],
) -> None:
    def loss(weight: float | None) -> float:
        trainer = PPOTrainer(make_config(ppo_epochs=1, minibatch_size=4, kl_coef=0.0), reward=spread)
        pairs = trainer.ppo_step(PROMPTS[:4])["sa_pairs"]
        assert "importance_weight" not in pairs.columns
        assert importance_metrics(pairs) == {}
        trainer = PPOTrainer(make_config(ppo_epochs=1, minibatch_size=4, kl_coef=0.0), reward=spread)
        if weight is not None:
            pairs = pairs.with_columns(importance_weight=torch.full((len(pairs),), weight))
        return float(trainer.model_trainer.train_policy_model(pairs))

    plain = loss(None)
    assert plain != 0
    assert loss(1.0) == plain
    assert loss(0.5) == pytest.approx(plain / 2, rel=1e-5)


def test_a_step_with_a_cap_has_the_column_and_its_metrics(make_config: Callable[..., PPOConfig]) -> None:
    trainer = PPOTrainer(make_config(), reward=spread)
    trainer.sequence_generator.importance_cap = 2.0
    results = trainer.ppo_step(PROMPTS[:4])
    weights = results["sa_pairs"].column("importance_weight")
    torch.testing.assert_close(weights, torch.ones(len(weights)), atol=1e-4, rtol=0)
    assert results["metrics"]["importance_ess"] == pytest.approx(1, abs=1e-4)
    assert results["metrics"]["importance_mean"] == pytest.approx(1, abs=1e-4)
    assert 1 <= results["metrics"]["importance_max"] < 1.001
