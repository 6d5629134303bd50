"""Blocks that no adapter changes run once per sequence, without changing any result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import setup_models
from ppolm.base_setup.trunk import Trunk, make_trunk
from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.ppo_trainer import PPOTrainer
from ppolm.supervised import RewardTrainer, SFTTrainer
from ppolm.supervised.supervised_trainer import SupervisedTrainer
from tests.closeness import assert_rounding, near
from tests.conftest import PROMPTS
from tests.supervised.small_trainings import DEMONSTRATIONS, PREFERENCES
from tests.tiny_models import ARCHITECTURES, make_model_folder

MakeConfig = Callable[..., PPOConfig]
TOP = {"trainable_layers": 1, "reward": ("model",), "kl_coef": 0.5}
COLUMNS = ("logprob_policy", "logprob_ref", "value", "reward", "advantage", "return")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of sequences in each pass through the trunk."""
    seen: list[int] = []
    compute = Trunk.compute

    def count(self: Trunk, input_ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.append(len(input_ids))
        return compute(self, input_ids, *rest)

    monkeypatch.setattr(Trunk, "compute", count)
    return seen


def two_steps(config: PPOConfig, plain: bool) -> tuple[PPOTrainer, list[dict[str, Any]]]:
    trainer = PPOTrainer(config)
    if plain:
        trainer.models.adapters.trunk, trainer.models.adapters.packs_prompts = None, False
    return trainer, [trainer.ppo_step(PROMPTS[: config.prompts_per_step]) for _ in range(2)]


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("architecture", ["qwen3", "llama", "gpt_neox", "qwen2"])
@pytest.mark.parametrize("samples", [1, 2])
def test_a_ppo_step_is_the_same_with_and_without(
    architecture: str, samples: int, make_config: MakeConfig, tmp_path: Path
) -> None:
    folder = make_model_folder(tmp_path / "model", architecture, scale=2.0)
    config = make_config(model_name=str(folder), samples_per_prompt=samples, learning_rate=1e-4, **TOP)
    fast, steps = two_steps(config, plain=False)
    slow, expected = two_steps(config, plain=True)
    assert fast.models.adapters.trunk is not None
    for step, reference in zip(steps, expected, strict=True):
        assert step["generated_texts"] == reference["generated_texts"]
        for name in COLUMNS:
            ours, theirs = step["sa_pairs"].columns[name], reference["sa_pairs"].columns[name]
            assert_rounding(ours, theirs, what=name)
        for loss in ("policy_loss", "value_loss"):
            assert step[loss] == near(reference[loss])
        assert step["metrics"]["kl"] == 0.0 or step is not steps[0]
    theirs = slow.models.policy.parameters()
    for name, value in fast.models.policy.parameters().items():
        assert_rounding(value, theirs[name])


def test_it_runs_once_for_all_roles_and_all_epochs(make_config: MakeConfig, counted: list[int]) -> None:
    trainer = PPOTrainer(make_config(ppo_epochs=3, **TOP))
    counted.clear()
    trainer.ppo_step(PROMPTS[:4])
    assert sum(counted) == 4


def test_beyond_its_budget_it_is_computed_again_with_the_same_result(
    make_config: MakeConfig, counted: list[int]
) -> None:
    roomy = PPOTrainer(make_config(**TOP)).ppo_step(PROMPTS[:4])
    trainer = PPOTrainer(make_config(trunk_mib=0, **TOP))
    counted.clear()
    tight = trainer.ppo_step(PROMPTS[:4])
    assert sum(counted) > 4
    trunk = trainer.models.adapters.trunk
    assert trunk is not None
    assert trunk.bytes == 0
    assert not trunk.kept
    assert tight["policy_loss"] == near(roomy["policy_loss"])


def test_roles_whose_adapters_reach_further_down_run_as_a_whole(make_config: MakeConfig, tmp_path: Path) -> None:
    deep = setup_models(make_config())
    assert deep.adapters.trunk is None
    assert deep.reward is not None
    deep.reward.set_scale([torch.arange(3, 9), torch.arange(4, 12)])
    deep.reward.save(tmp_path / "reward")
    models = setup_models(make_config(trainable_layers=1, reward_model=(str(tmp_path / "reward"),)))
    assert models.reward is not None
    assert (models.policy.first_block, models.sft.first_block, models.reward.first_block) == (1, 2, 0)
    ids = [torch.arange(3, 11), torch.arange(5, 30)]
    torch.testing.assert_close(models.reward.scores(ids), deep.reward.scores(ids))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_architecture_that_cannot_is_found_out(architecture: str, tmp_path: Path, make_config: MakeConfig) -> None:
    folder = make_model_folder(tmp_path, architecture)
    setup = setup_models(make_config(model_name=str(folder))).setup
    found = make_trunk(setup, 1, 2**20) is not None
    assert found == (architecture != "gpt2"), "GPT-2 adds positions to what enters"
    assert setup.capabilities.has("shared_trunk") == found, "and the record says so"


SLOW = {"lora_r": 4, "batch_size": 5, "num_epochs": 2, "eval_every": 4, "learning_rate": 1e-2, "device": "cpu"}


def supervised(kind: str, model: Path, **changes: Any) -> SupervisedTrainer[Any]:
    settings: dict[str, Any] = {"model_name": str(model), "trainable_layers": 1, "lora_dropout": 0.0} | SLOW | changes
    if kind == "sft":
        return SFTTrainer(SFTConfig(**settings), DEMONSTRATIONS)
    return RewardTrainer(RewardConfig(**settings), PREFERENCES)


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("kind", ["sft", "reward"])
def test_supervised_training_is_the_same_with_and_without(kind: str, model_folder: Path, counted: list[int]) -> None:
    fast, slow = supervised(kind, model_folder), supervised(kind, model_folder)
    slow.model.adapters.trunk = None
    counted.clear()
    history = fast.train()
    once = sum(counted)
    assert 0 < once <= len(fast.rows) + len(fast.held_out)
    for ours, theirs in zip(history, slow.train(), strict=True):
        assert ours == near(theirs)
    assert sum(counted) == once


def test_supervised_training_without_room_for_all_rows_says_so_and_goes_on(model_folder: Path, caplog: Any) -> None:
    roomy, tight = supervised("reward", model_folder), supervised("reward", model_folder, trunk_mib=0)
    history = tight.train()
    assert "trunk_mib is too small" in caplog.text
    for ours, theirs in zip(history, roomy.train(), strict=True):
        assert ours == near(theirs)
