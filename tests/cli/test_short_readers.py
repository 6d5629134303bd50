"""A reward model that reads less than a policy may write is refused before anything is made."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm import embedded
from ppolm.base_setup.model_setup import setup_models
from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from tests.cli.failing import fails, train

MakeConfig = Callable[..., PPOConfig]


@pytest.fixture
def short_reader(make_config: MakeConfig, tmp_path: Path) -> Path:
    """A reward model trained on rows of at most 4 tokens, which is the length of responses in ``files``."""
    reward = setup_models(make_config()).reward
    assert reward is not None
    reward.max_tokens = 4
    reward.save(tmp_path / "short-reader")
    return tmp_path / "short-reader"


@pytest.mark.parametrize(
    "role",
    [
        ("--reward", "model"),
        ("--judge", "model", "--eval-every", "1", "--eval-fraction", "0.4"),
        ("--reward", "human", "--human-fallback", "model", "--human-timeout", "0"),
    ],
)
def test_a_reward_model_that_cannot_read_the_longest_response_is_refused_at_the_start(
    files: Path, short_reader: Path, capsys: Any, role: tuple[str, ...]
) -> None:
    message = fails(capsys, *train(files, "--reward-model", str(short_reader), *role))
    assert "max_new_tokens is 4" in message
    assert f"{short_reader} reads at most 4 tokens" in message
    assert "Set max_new_tokens to 3 or less" in message
    assert not (files / "runs").exists(), "not even a folder is left behind"


def test_a_sweep_refuses_such_a_reward_model_too_and_a_mere_start_of_values_does_not(
    files: Path, short_reader: Path, capsys: Any
) -> None:
    config = PPOConfig.from_yaml(files / "config.yaml")
    judged = dataclasses.replace(
        config, reward_model=(str(short_reader),), judge="model", eval_every=1, eval_fraction=0.4
    )
    judged.to_yaml(files / "sweep.yaml")
    sweep = ("overopt", "--config", str(files / "sweep.yaml"), "--steps", "1", "--output", str(files / "sweep"))
    assert "reads at most 4 tokens" in fails(capsys, *sweep)
    assert ppolm(list(train(files, "--reward-model", str(short_reader), "--value-init", "reward"))) == 0


def test_the_demo_refuses_a_reward_model_that_reads_less_than_it_writes(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(embedded.reward_path("embedded"), tmp_path / "reward")
    norm = json.loads((tmp_path / "reward/reward.json").read_text())
    (tmp_path / "reward/reward.json").write_text(json.dumps(norm | {"max_tokens": 40}))
    monkeypatch.setattr("ppolm.base_setup.model_setup.reward_path", lambda _: str(tmp_path / "reward"))
    message = fails(capsys, "demo", "--steps", "1", "--output-dir", str(tmp_path / "runs"))
    assert "max_new_tokens is 48" in message
