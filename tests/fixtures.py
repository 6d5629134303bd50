"""Shared fixtures: a tiny model, a quick configuration, and the initial state of tests."""

from __future__ import annotations

import base64
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
import transformers

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.kernels.cpu_bfloat16 import make_bfloat16_safe
from tests.conftest import THREADS
from tests.tiny_models import make_model_folder

# The same examples every time, with no deadline on slow machines.
hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.load_profile("steady")
torch.set_num_threads(THREADS)
transformers.utils.logging.disable_progress_bar()

make_bfloat16_safe()  # before the first matrix product: afterwards the instruction limit would be ignored

gc.collect()
gc.freeze()  # what the imports have left is not looked through at every collection of garbage

ONE_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG."""

pytest_plugins = ["tests.cli.failing", "tests.reward_cases", "tests.table_cases"]  # their fixtures


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps ppolm's per-user state out of the home folder of whoever runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    gc.unfreeze()  # so that modules are taken down in order


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen3 in a folder."""
    return make_model_folder(tmp_path_factory.mktemp("qwen3"), scale=3.0)


@pytest.fixture
def make_config(model_folder: Path, tmp_path: Path) -> Callable[..., PPOConfig]:
    """Makes a configuration that trains very quickly; keyword arguments override it."""

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
            "log_to": (),
            "device": "cpu",
        }
        return PPOConfig(**(quick | changes))

    return make


@pytest.fixture
def always_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs answers with their prompt wherever possible: at the size of tests it would seldom pay."""
    monkeypatch.setattr("ppolm.batches.packing_cost.PAYS", 1e9)


@pytest.fixture
def models(make_config: Callable[..., PPOConfig]) -> Models:
    """The four roles on the tiny base."""
    return setup_models(make_config())


@pytest.fixture(autouse=True)
def no_rendering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tests marked ``pictures`` render figures; others write one pixel. Rendering is half of a tiny run."""

    def write_one_pixel(_: Any, path: Path, **__: Any) -> None:
        Path(path).write_bytes(ONE_PIXEL)

    if request.node.get_closest_marker("pictures") is None:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", write_one_pixel)
