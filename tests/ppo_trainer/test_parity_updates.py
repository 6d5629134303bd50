"""PARITY, roles and updates: ``test_parity_NN`` covers line NN of the list of details an RLHF-PPO must get right."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig
from ppolm.experience_buffer import BatchedData
from ppolm.models.scalar_head import ScalarHead
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rollout import kv_sampler
from ppolm.rollout.sampling import Sampling
from ppolm.token_attribution import SAPairs
from ppolm.training.schedule import learning_rate_factor
from ppolm.training.value_loss import value_loss
from tests.closeness import near
from tests.conftest import PROMPTS, spread
from tests.sft_adapter import make_sft_adapter
from tests.table_cases import full_table
from tests.tiny_models import EOS

MakeConfig = Callable[..., PPOConfig]


def test_parity_09_nothing_after_eos_contributes_to_anything(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch in which one response ended early has exactly the rows, KL, loss and metrics of its real tokens."""
    config = make_config(ppo_epochs=1, minibatch_size=4, whiten_advantages=False, without=("slot_sampler",))
    trainer = PPOTrainer(config, reward=spread)
    real = kv_sampler.choose_unchecked

    def choose(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
        tokens, logprobs = real(logits, uniforms, sampling)
        tokens[0] = EOS  # the first response ends at once; later steps only pad it
        return tokens, logprobs

    monkeypatch.setattr(kv_sampler, "choose_unchecked", choose)
    pairs = full_table(trainer, PROMPTS[:1] * 4)
    assert pairs.lengths.tolist() == [1, 6, 6, 6]
    assert {name: len(values) for name, values in pairs.columns.items()} == dict.fromkeys(pairs.columns, 19)
    parts = [full_loss(trainer, pairs.select([i])) for i in range(4)]
    expected = sum(loss * length for loss, length in zip(parts, [1, 6, 6, 6], strict=True)) / 19
    assert full_loss(trainer, pairs) == near(expected)


def full_loss(trainer: PPOTrainer, pairs: SAPairs) -> float:
    """The policy loss of a table; the policy is restored afterwards."""
    before = {name: value.clone() for name, value in trainer.models.policy.parameters().items()}
    loss = trainer.model_trainer.train_step(pairs)[0]
    with torch.no_grad():
        for name, value in trainer.models.policy.parameters().items():
            value.copy_(before[name])
    return loss


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
def test_parity_17_first_minibatch_has_ratio_1_clip_fraction_0_and_approx_kl_0(
    make_config: MakeConfig, tmp_path: Path, with_sft: bool
) -> None:
    sft = str(make_sft_adapter(make_config(), tmp_path / "sft")) if with_sft else None
    trainer = PPOTrainer(make_config(sft_adapter=sft, ppo_epochs=1, minibatch_size=4))
    metrics = trainer.model_trainer.train_policy_model(full_table(trainer)).metrics
    assert metrics["ratio"] == near(1)
    assert metrics["clip_fraction"] == 0
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-7)


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
