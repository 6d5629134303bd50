"""The nine Key Interfaces of the design documents, with their names and signatures, on the trainer's components."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ppolm.config import PPOConfig
from ppolm.evaluation.evaluator import Evaluator
from ppolm.evaluation.verdict import Convergence, Performance
from ppolm.experience_buffer import BatchedData
from ppolm.ppo_trainer import PPOTrainer
from ppolm.runs.results import TrainingResults
from ppolm.token_attribution import SAPairs
from tests.closeness import near
from tests.conftest import PROMPTS, spread
from tests.table_cases import full_table


@pytest.fixture
def trainer(make_config: Callable[..., PPOConfig]) -> PPOTrainer:
    return PPOTrainer(make_config(), reward=spread)


def test_trainer_train_takes_prompts_and_epochs_and_returns_training_results(trainer: PPOTrainer) -> None:
    results = trainer.train(PROMPTS, 2)
    assert isinstance(results, TrainingResults)
    assert results.steps == 3
    assert Path(results.best_dir, "adapter_model.safetensors").is_file()


def test_generator_generate_returns_texts_and_logprobs(trainer: PPOTrainer) -> None:
    texts, logprobs = trainer.generator.generate(PROMPTS[:2])
    assert all(isinstance(text, str) for text in texts)
    assert [len(part) for part in logprobs] == [len(text.token_ids) for text in texts]
    assert all(bool((part < 0).all()) for part in logprobs)


def test_token_attributor_extract_pairs_takes_text_and_logprobs(trainer: PPOTrainer) -> None:
    pairs = trainer.attributor.extract_pairs(*trainer.generator.generate(PROMPTS[:2]))
    assert isinstance(pairs, SAPairs)
    assert {"state", "action", "logprob_policy", "logprob_ref"} <= set(pairs[0])
    assert pairs[0]["state"] == PROMPTS[0]


def test_reward_computer_compute_rewards_takes_texts(trainer: PPOTrainer) -> None:
    texts, _ = trainer.generator.generate(PROMPTS[:2])
    rewards = trainer.reward_computer.compute_rewards(texts)
    assert rewards == trainer.reward_computer.compute_rewards(PROMPTS[:2], texts)
    assert all(isinstance(reward, float) for reward in rewards)


def test_value_adder_add_values_takes_states(trainer: PPOTrainer) -> None:
    torch.nn.init.normal_(trainer.models.value.head.linear.weight)
    pairs = trainer.attributor.extract_pairs(*trainer.generator.generate(PROMPTS[:1]))
    from_table = trainer.value_adder.add_values(pairs)
    from_text = trainer.value_adder.add_values([PROMPTS[0]])
    assert from_table.shape == (len(pairs),)
    assert float(from_text[0]) == near(float(from_table[0]))


def test_advantage_comp_compute_advantages_takes_rewards_and_values(trainer: PPOTrainer) -> None:
    advantages, returns = trainer.advantage_comp.compute_advantages(rewards=[0.75], values=[0.2, 0.3, 0.4])
    # by hand: gamma 0.99, lambda 0.95, the score on the last token
    last = 0.75 - 0.4
    middle = 0.99 * 0.4 - 0.3 + 0.99 * 0.95 * last
    first = 0.99 * 0.3 - 0.2 + 0.99 * 0.95 * middle
    torch.testing.assert_close(advantages, torch.tensor([first, middle, last]))
    torch.testing.assert_close(returns, torch.tensor([first + 0.2, middle + 0.3, last + 0.4]))
    with pytest.raises(ValueError, match="2 rewards for 3 values"):
        trainer.advantage_comp.compute_advantages([1.0, 2.0], [0.0, 0.0, 0.0])


def test_experience_buffer_store_returns_batched_data(trainer: PPOTrainer) -> None:
    batch = trainer.buffer.store(full_table(trainer))
    assert isinstance(batch, BatchedData)
    assert batch.pairs.num_sequences == 4


def test_model_trainer_train_step_returns_policy_and_value_loss(trainer: PPOTrainer) -> None:
    batch = trainer.buffer.store(full_table(trainer))
    policy_loss, value_loss = trainer.model_trainer.train_step(batch)
    assert isinstance(policy_loss, float)
    assert isinstance(value_loss, float)
    assert isinstance(trainer.model_trainer.train_policy_model(batch), float)
    assert isinstance(trainer.model_trainer.train_value_model(batch.pairs), float)
    assert isinstance(trainer.model_trainer.train_value_model(batch.pairs.to_dicts()), float)


def test_evaluator_evaluate_takes_metrics_and_returns_performance_and_convergence(trainer: PPOTrainer) -> None:
    evaluator = Evaluator(trainer, [])
    performance, convergence = evaluator.evaluate({"policy_loss": 0.15, "value_loss": 0.08, "avg_reward": 0.75})
    assert isinstance(performance, Performance)
    assert isinstance(convergence, Convergence)
    assert performance.performance_improved
    assert not convergence.converged
    with pytest.raises(ValueError, match="avg_reward"):
        evaluator.evaluate({"policy_loss": 0.15})


def test_ppo_step_returns_what_the_documents_promise(trainer: PPOTrainer) -> None:
    results = trainer.ppo_step(PROMPTS[:4])
    assert {"generated_texts", "rewards", "value_loss", "policy_loss", "sa_pairs", "metrics"} <= results.keys()
    pairs = results["sa_pairs"]
    columns = {"prompt_idx", "step", "action_id", "logprob_policy", "logprob_ref", "kl", "reward", "value"}
    assert columns | {"td_error", "advantage", "return", "reward_to_go"} <= pairs.columns.keys()
    assert all(isinstance(column, Tensor) and len(column) == len(pairs) for column in pairs.columns.values())


def test_config_has_every_field_and_default_of_the_users_readme() -> None:
    config = PPOConfig()
    assert (config.model_name, config.lora_r, config.lora_alpha) == ("Qwen/Qwen3-0.6B-Base", 16, 32)
    assert (config.lora_dropout, config.learning_rate, config.value_learning_rate) == (0.1, 1e-5, 1e-4)
    assert (config.batch_size, config.max_new_tokens, config.gamma, config.lam) == (32, 10, 0.99, 0.95)
    assert (config.kl_coef, config.clip_epsilon, config.temperature) == (0.1, 0.2, 1.0)
    assert (config.top_k, config.top_p, config.max_grad_norm, config.value_coef) == (50, 0.95, 1.0, 0.5)
