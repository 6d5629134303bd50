"""Every setting of PPOConfig has an effect. ``acts`` names the settings that a test covers; one test checks that all
are covered."""

from __future__ import annotations

import dataclasses
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ppolm.advantage import AdvantageComp
from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig
from ppolm.errors import RewardError, TrainingDivergedError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rewards.build import build_reward
from ppolm.token_attribution.token_attribution import AGREES
from tests.config import test_model_settings_act, test_run_settings_act  # noqa: F401 (what they cover counts)
from tests.config.acting import COVERED, MakeConfig, acts
from tests.conftest import PROMPTS, spread
from tests.table_cases import full_table


def length(prompts: list[str], responses: list[str]) -> list[float]:
    return [len(response) / 9 for response in responses]


def outcome(config: PPOConfig, steps: int = 2) -> list[Tensor]:
    """All numbers of a short training: the last table and every trained parameter."""
    trainer = PPOTrainer(config, reward={"spread": spread, "length": length})
    trainer.total_steps = 3
    for step in range(steps):
        results = trainer.ppo_step(PROMPTS[2 * step : 2 * step + 4])
    models = (trainer.models.policy, trainer.models.value)
    return [
        *results["sa_pairs"].columns.values(),
        *(value for model in models for value in model.parameters().values()),
    ]


def differ(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) != len(other) or any(
        a.shape != b.shape or not torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


# For each setting: a value that changes the numbers of training, and other settings needed for it to matter.
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "lora_r": (8, {}),
    "lora_alpha": (64, {}),
    "lora_target_modules": (("q_proj",), {}),
    "value_init": ("reward", {"reward": ("model",), "judge": "model", "reward_model": "RM"}),
    "dtype": ("bfloat16", {}),
    "learning_rate": (1e-2, {}),
    "value_learning_rate": (1e-2, {}),
    "lr_schedule": ("linear", {}),
    "warmup_steps": (4, {}),
    "weight_decay": (5.0, {}),
    "adam_eps": (1e-2, {}),
    "samples_per_prompt": (2, {}),
    "ppo_epochs": (3, {}),
    "minibatch_size": (3, {}),
    "minibatch_order": ("bucketed", {}),
    "gamma": (0.5, {}),
    "lam": (0.3, {}),
    "value_target": ("reward_to_go", {"value_learning_rate": 0.05}),
    "clip_epsilon": (1e-4, {"learning_rate": 0.02}),
    "clip_epsilon_high": (1e-4, {"learning_rate": 0.02}),
    "dual_clip": (1.0001, {"learning_rate": 0.2, "clip_epsilon": 1e-4, "ppo_epochs": 6}),
    "value_clip": (1e-4, {"value_learning_rate": 0.05}),
    "value_coef": (2.0, {}),
    "entropy_coef": (1.0, {}),
    "max_grad_norm": (1e-3, {}),
    "target_kl": (1e-9, {}),
    "value_warmup_steps": (1, {}),
    "buffer_capacity": (13, {}),
    "replay_rollouts": (2, {}),
    "kl_coef": (5.0, {"learning_rate": 0.02}),
    "kl_estimator": ("k3", {"learning_rate": 0.02}),
    "kl_placement": ("loss", {"kl_estimator": "k3", "learning_rate": 0.02}),
    "adaptive_kl": (True, {"learning_rate": 0.02, "kl_coef": 5.0, "batch_size": 4}),
    "kl_target": (1e-3, {"learning_rate": 0.02, "kl_horizon": 4, "adaptive_kl": True}),
    "kl_horizon": (100, {"learning_rate": 0.02, "adaptive_kl": True}),
    "reward_weights": ((1.0, -2.0), {"reward": ("spread", "length")}),
    "normalize_rewards": ("running", {}),
    "whiten_rewards": (True, {}),
    "whiten_advantages": (False, {}),
    "missing_eos_penalty": (2.0, {"whiten_advantages": False}),
    "max_new_tokens": (9, {}),
    "temperature": (0.5, {}),
    "top_k": (2, {}),
    "top_p": (0.2, {}),
    "trainable_layers": (1, {}),
    "seed": (1, {}),
}
COVERED.update(CHANGES)
COVERED.update({"feedback_store", "human_timeout", "human_fallback"})  # tests/rewards/test_human_reward.py
COVERED.update({"reward_std_penalty"})  # tests/models/test_reward_ensemble.py
COVERED.update({"start_from", "start_reference", "start_value"})  # tests/runs/test_second_rounds.py
COVERED.update({"engine"})  # tests/engines/test_mlx_runs.py, tests/engines/test_vllm_runs.py
COVERED.update({"engine_url", "engine_folder", "engine_timeout", "async_rollouts"})
COVERED.update({"importance_cap", "importance_sequence_cap"})  # all of them: tests/engines/test_vllm_runs.py


UNCHANGED: dict[str, Any] = {}
"""Baseline results by the other settings they were computed with, since many settings share a baseline."""


@pytest.mark.parametrize("name", CHANGES)
def test_setting_changes_the_numbers_of_training(make_config: MakeConfig, tmp_path: Path, name: str) -> None:
    value, context = CHANGES[name]
    if context.get("reward_model") == "RM":
        reward = setup_models(make_config()).reward
        assert reward is not None
        reward.save(tmp_path / "reward")
        context = context | {"reward_model": str(tmp_path / "reward")}
    steps = 3 if name in ("adaptive_kl", "kl_target", "kl_horizon") else 2
    key = f"{sorted(context.items())} {steps}"
    if key not in UNCHANGED:
        same, again = (outcome(make_config(**context), steps) for _ in range(2))
        assert not differ(same, again)  # so that a difference can only come from the setting
        UNCHANGED[key] = same
    assert differ(UNCHANGED[key], outcome(make_config(**(context | {name: value})), steps))


@acts("kl_horizon")
def test_kl_horizon_slows_the_controller(make_config: MakeConfig) -> None:
    moves = []
    for horizon in (4, 400):
        trainer = PPOTrainer(make_config(adaptive_kl=True, kl_horizon=horizon, kl_target=0.1), reward=spread)
        trainer.ppo_step(PROMPTS[:4])
        moves.append(abs(trainer.kl.coef - 0.1))
    assert moves[0] == pytest.approx(100 * moves[1])


@acts("microbatch_tokens", "rollout_tokens")
def test_token_budgets_bound_each_forward_pass(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = PPOTrainer(make_config(microbatch_tokens=60, rollout_tokens=70), reward=spread)
    sizes: list[tuple[bool, int]] = []
    blocks = trainer.models.setup.blocks

    def spy(**inputs: Any) -> Any:
        sizes.append((inputs["use_cache"], inputs["input_ids"].numel()))
        return blocks(**inputs)

    monkeypatch.setattr(trainer.models.setup, "blocks", spy)
    trainer.ppo_step(PROMPTS[:6])
    assert max(size for cached, size in sizes if not cached) <= 60
    assert max(size for cached, size in sizes if cached) <= 70
    assert len([1 for cached, size in sizes if cached and size > 6]) >= 3  # several prefills for six prompts


@acts("recompute_logprobs")
def test_recompute_logprobs_decides_where_logprob_policy_comes_from(make_config: MakeConfig) -> None:
    for name, recompute in (("always", True), ("never", False), ("auto", True)):
        trainer = PPOTrainer(make_config(recompute_logprobs=name), reward=spread)
        pairs = trainer.sequence_generator.generate_sequences(PROMPTS)[0]
        same_as_ref = torch.equal(pairs.column("logprob_policy"), pairs.column("logprob_ref"))
        same_as_sampler = torch.equal(pairs.column("logprob_policy"), pairs.column("logprob_sampler"))
        assert (same_as_ref, same_as_sampler) == (recompute, not recompute)
        torch.testing.assert_close(
            pairs.column("logprob_sampler"), pairs.column("logprob_policy"), rtol=1e-4, atol=1e-5
        )


def test_auto_believes_the_sampler_once_it_was_seen_to_agree_and_no_longer_than_that(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(learning_rate=1e-4), reward=spread)
    first = trainer.ppo_step(PROMPTS[:4])
    assert first["metrics"]["kl"] == 0.0, "scored by the same pass as the reference"
    assert first["metrics"]["sampler_mismatch"] < AGREES
    second = trainer.ppo_step(PROMPTS[:4])["sa_pairs"]
    assert torch.equal(second.column("logprob_policy"), second.column("logprob_sampler"))
    generate = trainer.generator.generate

    def careless(prompts: Any) -> Any:
        texts, logprobs = generate(prompts)
        return texts, [values + 0.01 for values in logprobs]

    trainer.generator.generate = careless  # type: ignore[method-assign]
    third = trainer.ppo_step(PROMPTS[:4])
    assert third["metrics"]["sampler_mismatch"] == pytest.approx(0.01, rel=0.01)
    fourth = trainer.ppo_step(PROMPTS[:4])["sa_pairs"]
    torch.testing.assert_close(
        fourth.column("logprob_policy") + 0.01, fourth.column("logprob_sampler"), rtol=1e-4, atol=1e-5
    )


@acts("max_skipped_updates")
def test_max_skipped_updates_stops_a_run_of_broken_updates(make_config: MakeConfig, caplog: Any) -> None:
    trainer = PPOTrainer(make_config(max_skipped_updates=3), reward=spread)
    pairs = full_table(trainer)
    broken = pairs.with_columns(advantage=torch.full((len(pairs),), math.nan))
    before = [value.clone() for value in trainer.models.policy.parameters().values()]
    with caplog.at_level(logging.WARNING), pytest.raises(TrainingDivergedError, match="3 policy updates in a row"):
        trainer.model_trainer.train_policy_model(broken)
    assert trainer.model_trainer.policy_updater.skipped == 3
    after = trainer.models.policy.parameters().values()
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


@acts("reward")
def test_reward_names_where_scores_come_from(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def score(prompts, responses):\n    return [7.0] * len(responses)\n")
    trainer = PPOTrainer(make_config(reward=(f"{tmp_path}/own.py:score",)))
    assert trainer.ppo_step(PROMPTS[:2])["rewards"] == [7.0, 7.0]


@acts("on_reward_error", "default_reward")
def test_reward_errors_raise_or_default_as_configured(make_config: MakeConfig) -> None:
    def bad(prompts: list[str], responses: list[str]) -> list[float]:
        return [math.nan if "cats" in prompt else 1.0 for prompt in prompts]

    with pytest.raises(RewardError, match="Tell me about cats"):
        PPOTrainer(make_config(), reward=bad).ppo_step(PROMPTS[:2])
    trainer = PPOTrainer(make_config(on_reward_error="default", default_reward=-4.0), reward=bad)
    results = trainer.ppo_step(PROMPTS[:2])
    assert results["rewards"] == [-4.0, 1.0]
    assert results["metrics"]["reward_failures"] == 1


@acts("reward_timeout", "reward_retries")
def test_reward_timeout_and_retries_reach_the_rewards(make_config: MakeConfig) -> None:
    served = make_config(reward=("http://127.0.0.1:9/score",), reward_timeout=0.05, reward_retries=7)
    http: Any = build_reward("http://127.0.0.1:9/score", served, None)
    assert (http.timeout, http.retries) == (0.05, 7)
    config = make_config(reward_timeout=0.05)

    def slow(prompts: list[str], responses: list[str]) -> list[float]:
        import time

        time.sleep(1)
        return [0.0] * len(responses)

    with pytest.raises(RewardError, match=r"reward_timeout 0\.05"):
        PPOTrainer(config, reward=slow).ppo_step(PROMPTS[:2])


def test_every_setting_has_a_test_that_it_acts() -> None:
    assert {field.name for field in dataclasses.fields(PPOConfig)} - COVERED == set()


def test_metrics_of_a_step_are_its_own(make_config: MakeConfig) -> None:
    """A step whose updates were all skipped, or that trains no policy, does not repeat numbers of the previous step."""
    trainer = PPOTrainer(make_config(max_skipped_updates=1000), reward=spread)
    trainer.ppo_step(PROMPTS[:4])
    trainer.advantage_comp = AdvantageComp(math.nan, 0.95)
    metrics = trainer.ppo_step(PROMPTS[:4])["metrics"]
    assert metrics["skipped_updates"] > 0
    assert not {"entropy", "approx_kl", "policy_grad_norm", "value_grad_norm"} & metrics.keys()
