"""Ensembles of reward models: the mean, minus a penalty for disagreement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig, RewardConfig
from ppolm.errors import ConfigError
from ppolm.models import RewardEnsemble
from ppolm.ppo_trainer import PPOTrainer
from ppolm.supervised import RewardTrainer
from tests.closeness import near
from tests.conftest import PROMPTS
from tests.supervised.small_trainings import PREFERENCES, QUICK


@pytest.fixture(scope="module")
def folders(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Three reward models that differ in their seed."""
    place = tmp_path_factory.mktemp("rewards")
    for seed in range(3):
        settings = QUICK | {"num_epochs": 1, "seed": seed}
        trainer = RewardTrainer(RewardConfig(model_name=str(model_folder), **settings), PREFERENCES)
        trainer.train()
        trainer.save(place / str(seed))
    return tuple(str(place / str(seed)) for seed in range(3))


TEXTS = ["Be kind 5:", "Be kind 6:"], [" kind 5", " rude 6"]


def single(model_folder: Path, folder: str) -> list[float]:
    reward = setup_models(PPOConfig(model_name=str(model_folder), reward_model=(folder,), device="cpu")).reward
    assert reward is not None
    return reward(*TEXTS)


@pytest.mark.parametrize("penalty", [0.0, 1.5])
def test_the_score_is_the_mean_less_the_disagreement(
    model_folder: Path, folders: tuple[str, ...], penalty: float
) -> None:
    config = PPOConfig(model_name=str(model_folder), reward_model=folders, reward_std_penalty=penalty, device="cpu")
    models = setup_models(config)
    assert isinstance(models.ensemble, RewardEnsemble)
    scores = torch.tensor([single(model_folder, folder) for folder in folders], dtype=torch.float64)
    deviation = ((scores - scores.mean(0)) ** 2).mean(0).sqrt()
    expected = scores.mean(0) - penalty * deviation
    assert models.ensemble(*TEXTS) == near(expected.tolist())
    assert float(deviation.min()) > 1e-3  # they do disagree


def test_ppo_trains_on_the_ensemble(make_config: Callable[..., PPOConfig], folders: tuple[str, ...]) -> None:
    def rewards(**changes: Any) -> list[float]:
        trainer = PPOTrainer(make_config(reward_model=folders, normalize_rewards="none", **changes))
        return [float(score) for score in trainer.ppo_step(PROMPTS[:4])["rewards"]]

    plain, careful = rewards(), rewards(reward_std_penalty=2.0)
    assert all(low < high for low, high in zip(careful, plain, strict=True))


def test_a_value_model_starts_from_the_first_of_them(model_folder: Path, folders: tuple[str, ...]) -> None:
    settings: dict[str, Any] = {"model_name": str(model_folder), "value_init": "reward", "device": "cpu"}
    several = setup_models(PPOConfig(reward_model=folders, **settings)).value
    first = setup_models(PPOConfig(reward_model=folders[:1], **settings)).value
    pairs = zip(several.parameters().values(), first.parameters().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_settings_that_cannot_work_are_named() -> None:
    with pytest.raises(ConfigError, match="reward_std_penalty needs several reward models"):
        PPOConfig(reward_model=("one",), reward_std_penalty=1.0)
    with pytest.raises(ConfigError, match="names the same folder twice: one, one"):
        PPOConfig(reward_model=("one", "one"))
