"""Shared fixtures: a tiny model, a quick configuration, and no network."""

from __future__ import annotations

import os

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
os.environ["OMP_NUM_THREADS"] = "1"  # of the programs that tests start; several tests run at once

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
import transformers

from ppolm.base_setup.cpu_bfloat16 import make_bfloat16_safe
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from tests.tiny_models import make_model_folder

# The same examples every time, however slow the machine is.
hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.load_profile("steady")
torch.set_num_threads(1)  # tiny models are fastest on one thread, and a busy machine cannot slow them down much
transformers.utils.logging.disable_progress_bar()

make_bfloat16_safe()  # before anything is multiplied: later the limit of instructions would not be heeded

pytest_plugins = ["tests.reward_cases", "tests.table_cases"]  # their fixtures

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
SLOW = frozenset((ROOT / "tests" / "slow_tests.txt").read_text().split())
"""Tests and files of tests that take more than a few seconds, as measured by `pytest --durations=0`."""
PROMPTS = [f"Tell me about {thing}:" for thing in ("cats", "the sea", "a long winter", "bread", "old maps", "rain")]

needs_shared_data = pytest.mark.skipif(
    not SHARED_DATA.is_dir(), reason="the shared real data is not beside this checkout"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first: begun last, one of them would keep a worker busy while the others have nothing to do."""
    for item in items:
        if item.name in SLOW or item.name.partition("[")[0] in SLOW or item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen3 in a folder."""
    return make_model_folder(tmp_path_factory.mktemp("qwen3"), scale=3.0)


@pytest.fixture
def make_config(model_folder: Path, tmp_path: Path) -> Callable[..., PPOConfig]:
    """A configuration that trains in a blink; keyword arguments change it."""

    def make(**changes: Any) -> PPOConfig:
        quick: dict[str, Any] = {
            "model_name": str(model_folder),
            "output_dir": str(tmp_path / "runs"),
            "run_name": "run",
            "lora_r": 4,
            "lora_alpha": 8,
            "batch_size": 4,
            "minibatch_size": 2,
            "ppo_epochs": 2,
            "max_new_tokens": 6,
            "learning_rate": 1e-3,
            "value_learning_rate": 1e-3,
            "tensorboard": False,
            "device": "cpu",
        }
        return PPOConfig(**(quick | changes))

    return make


@pytest.fixture
def always_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers share a row with their prompt wherever they can: at the size of tests it would seldom pay."""
    monkeypatch.setattr("ppolm.data.layout.PAYS", 1e9)


@pytest.fixture
def models(make_config: Callable[..., PPOConfig]) -> Models:
    """The four roles on the tiny base."""
    return setup_models(make_config())


def spread(prompts: list[str], responses: list[Any]) -> list[float]:
    """A reward that differs between any two responses: a hash of their tokens in [0, 1)."""
    return [sum(31 * i + token for i, token in enumerate(response.token_ids)) % 97 / 97 for response in responses]


def vowels(prompts: list[str], responses: list[str]) -> list[float]:
    """A reward with some spread: how many vowels a response has."""
    return [float(sum(letter in "aeiou" for letter in response)) for response in responses]


def bytes_below_128(prompts: list[str], responses: list[Any]) -> list[list[float]]:
    """A reward per token: 1 for a token of plain ASCII."""
    return [[float(token.isascii()) for token in response.tokens] for response in responses]
