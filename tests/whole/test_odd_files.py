"""Adapters, models, states and rewards from elsewhere: anything odd in them ends in one clear error message."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ppolm.base_setup import AdapterSet, BaseModelSetup
from ppolm.base_setup.device import resolve_device
from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig
from ppolm.errors import ConfigError, ModelError, RewardError, RunFolderError
from ppolm.ppo_trainer.default_components import DefaultComponents
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.ppo_trainer.run_comparison import read_state
from ppolm.rewards.function_reward import FunctionReward, load_function
from ppolm.runs.ppo_checkpoint import load_scale_state
from ppolm.supervised.load_reward import load_reward_model
from tests.tiny_models import make_model_folder

THREE = ["a", "b", "c"]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model and its base."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("good")
    config = PPOConfig(model_name=str(make_model_folder(folder / "model")), lora_r=2, device="cpu")
    reward = setup_models(config).reward
    assert reward is not None
    reward.save(folder / "reward")
    return folder


@pytest.fixture
def spoilt(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good / "reward", tmp_path / "reward"))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("file", ["adapter_model.safetensors", "head.safetensors"])
def test_weights_that_are_not_finite_are_refused(spoilt: Path, file: str, number: float) -> None:
    tensors = load_file(spoilt / file)
    first = sorted(tensors)[0]
    tensors[first].view(-1)[0] = number
    save_file(tensors, spoilt / file)
    with pytest.raises(ModelError, match="numbers that are not finite"):
        load_reward_model(str(spoilt))


def test_an_adapter_that_is_a_pickle_is_not_opened(spoilt: Path, good: Path) -> None:
    (spoilt / "adapter_model.safetensors").unlink()
    (spoilt / "adapter_model.bin").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    with pytest.raises(ModelError, match=r"adapter_model\.bin, a pickle.*safetensors"):
        load_reward_model(str(spoilt))
    adapters = AdapterSet(BaseModelSetup(PPOConfig(model_name=str(good / "model"), device="cpu")))
    with pytest.raises(ModelError, match="pickle"):
        adapters.load("policy", spoilt)


@pytest.mark.parametrize(
    "changes",
    [
        {"r": "two"},
        {"r": -1},
        {"r": 10**9},
        {"r": None},
        {"r": True},
        {"lora_alpha": 1e308},
        {"lora_alpha": float("nan")},
        {"lora_alpha": []},
        {"base_model_name_or_path": 7},
        {"base_model_name_or_path": ["a"]},
        {"lora_dropout": "x"},
        {"target_modules": 7},
        {"target_modules": {"a": 1}},
        {"target_modules": "("},
        {"peft_type": "NOTHING"},
        {"peft_type": 7},
        {"rank_pattern": [1]},
        {"task_type": {"a": []}},
        {"init_lora_weights": "x" * 10_000},
    ],
    ids=range(19),
)
def test_odd_fields_of_an_adapter_are_an_error(spoilt: Path, changes: dict[str, Any]) -> None:
    about = json.loads((spoilt / "adapter_config.json").read_text())
    (spoilt / "adapter_config.json").write_text(json.dumps(about | changes))
    with pytest.raises(ModelError) as error:
        load_reward_model(str(spoilt))
    assert len(str(error.value)) < 800


@pytest.mark.parametrize("text", ["[]", "7", "{", '{"mean": NaN, "std": 1}', '{"mean": 0, "std": 1e999}', "[" * 9000])
def test_an_odd_scale_of_a_reward_model_is_an_error(spoilt: Path, text: str) -> None:
    (spoilt / "reward.json").write_text(text)
    with pytest.raises(ModelError, match=r"reward\.json"):
        load_reward_model(str(spoilt))


@pytest.mark.parametrize("name", ["meta", "cuda:99", "nonsense", "\x1b[31m", "cpu:x", "x" * 5000, "privateuseone", ""])
def test_a_device_that_cannot_hold_numbers_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used here") as error:
        resolve_device(name)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 400


class BrokenError(Exception):
    """An error whose ``str`` fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def raises_broken(prompts: Any, responses: Any) -> Any:
    raise BrokenError


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ([1e308, -1e308, 1e308], r"1e\+308, expected a number within ±1e\+15"),
        ([1.0, 10**400, 2.0], "expected a number within"),
        ([[1e16], [1.0], [2.0]], "expected a number within"),
        ([[], [], []], "an empty list"),
        ([1.0, "x" * 10_000, 2.0], "expected a number"),
        ([1.0, float("nan"), 2.0], "nan, expected a finite number"),
    ],
)
@pytest.mark.parametrize("normalize", ["none", "batch", "running"])
def test_scores_that_cannot_be_computed_with_are_refused(returned: Any, expected: str, normalize: str) -> None:
    computer = RewardComputer({"mine": FunctionReward(lambda *_: returned, "mine", 5.0)}, (), normalize)
    with pytest.raises(RewardError, match=expected) as error:
        computer.compute_rewards(THREE, THREE)
    assert len(str(error.value)) < 500


def test_the_largest_scores_are_normalised_to_numbers() -> None:
    computer = RewardComputer({"mine": FunctionReward(lambda *_: [1e15, -1e15, 1e15], "mine", 5.0)}, (1e6,), "running")
    scores = computer.normalizer.normalize(computer.compute_rewards(THREE, THREE))
    assert all(abs(score) < 10 for score in scores if isinstance(score, float))


def test_a_reward_whose_error_has_no_text_is_told_by_its_kind() -> None:
    computer = RewardComputer({"mine": FunctionReward(raises_broken, "mine", 5.0)})
    with pytest.raises(RewardError, match="mine raised BrokenError: BrokenError"):
        computer.compute_rewards(THREE, THREE)


@pytest.mark.parametrize(
    "source", ["raise SystemExit(3)", "raise BaseException('x' * 9999)", "score = 7", "def f(: pass"]
)
def test_a_reward_file_that_ends_the_program_or_holds_nothing_is_an_error(tmp_path: Path, source: str) -> None:
    (tmp_path / "odd_reward.py").write_text(source)
    with pytest.raises(RewardError) as error:
        load_function(f"{tmp_path}/odd_reward.py:score")
    assert len(str(error.value)) < 800


@pytest.mark.parametrize("text", ["[]", "7", "{", "[" * 9000, ""])
def test_a_state_file_that_is_none_is_a_damaged_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "best.json").write_text(text)
    with pytest.raises(RunFolderError, match="damaged"):
        read_state(tmp_path / "best.json")


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"components": None},
        {"components": {"kl": {"coef": None}}},
        {"components": {"kl": {"coef": 1}, "reward_computer": 7}},
        {"components": {"kl": {"coef": []}, "reward_computer": {"normalizer": {}}}},
        {"components": {"kl": {"coef": 1}, "reward_computer": {"normalizer": 7}}},
    ],
)
def test_a_state_without_its_numbers_is_a_damaged_run(make_config: Any, state: dict[str, Any]) -> None:
    class Trainer:
        def components(self) -> dict[str, Any]:
            nothing: Any = None
            kl = DefaultComponents(make_config(), nothing).kl()
            return {"kl": kl, "reward_computer": RewardComputer({}, normalize="batch")}

    with pytest.raises(RunFolderError, match="scale of rewards"):
        load_scale_state(Trainer(), state)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": "x"},
        {"num_hidden_layers": -1},
        {"hidden_size": 0},
        {"hidden_size": [1]},
        {"vocab_size": -5},
        {"model_type": "nothing"},
        {"model_type": None},
        {"num_attention_heads": 0},
        {"num_attention_heads": 1e308},
        {"rope_parameters": 7},
        {"dtype": "x"},
    ],
    ids=range(11),
)
def test_odd_settings_of_a_model_are_an_error(good: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = Path(shutil.copytree(good / "model", tmp_path / "model"))
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(about | changes))
    with pytest.raises(ModelError) as error:
        BaseModelSetup(PPOConfig(model_name=str(folder), device="cpu"))
    assert len(str(error.value)) < 800
