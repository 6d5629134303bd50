"""SFT and reward training can start from the policy of a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.errors import ConfigError, RunFolderError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.supervised import RewardTrainer, SFTTrainer
from tests.cli.failing import fails
from tests.conftest import PROMPTS, spread
from tests.supervised.small_trainings import DEMONSTRATIONS, PREFERENCES, QUICK

MakeConfig = Callable[..., PPOConfig]


@pytest.fixture
def policy(make_config: MakeConfig) -> Path:
    """A finished run of PPO."""
    return PPOTrainer(make_config(max_steps=1, eval_every=0), reward=spread).train(PROMPTS).run_dir


def make(kind: str, **given: Any) -> SFTTrainer | RewardTrainer:
    if kind == "sft":
        return SFTTrainer(SFTConfig(**QUICK | given), DEMONSTRATIONS)
    return RewardTrainer(RewardConfig(**QUICK | given), PREFERENCES)


@pytest.mark.parametrize("kind", ["sft", "reward"])
def test_training_starts_from_the_policy_of_a_run_and_says_so(
    kind: str, policy: Path, model_folder: Path, tmp_path: Path
) -> None:
    trainer = make(kind, model_name=str(model_folder), start_from=str(policy))
    stored = list(load_file(policy / "best" / "adapter_model.safetensors").values())
    own = [value for name, value in trainer.model.parameters().items() if not name.startswith("head.")]
    assert len(own) == len(stored)
    assert all(any(torch.equal(value, other) for other in stored) for value in own)
    history = trainer.train()
    assert min(row["loss"] for row in history) < history[0]["loss"]
    shutil.rmtree(policy)  # what is noted was known from the beginning
    trainer.save(tmp_path / "out")
    (ancestor,) = json.loads((tmp_path / "out" / "training.json").read_text())["ancestors"]
    assert ancestor["path"] == str(policy)


def test_an_interrupted_training_resumes_from_its_own_weights(
    policy: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"model_name": str(model_folder), "start_from": str(policy), "checkpoint_every": 1}
    whole = make("sft", **given)
    whole.train()
    broken = make("sft", **given)
    update, count = broken.updater.update, 0

    def fails_later(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        update(*arguments)

    monkeypatch.setattr(broken.updater, "update", fails_later)
    with pytest.raises(KeyboardInterrupt):
        broken.train(tmp_path / "checkpoint")
    resumed = make("sft", **given)
    resumed.train(tmp_path / "checkpoint")
    for one, other in zip(whole.model.parameters().values(), resumed.model.parameters().values(), strict=True):
        assert torch.equal(one, other)


def test_the_command_takes_the_base_from_the_run(policy: Path, tmp_path: Path, capsys: Any) -> None:
    rows = [{"prompt": f"Question {i}?", "completion": f" Answer {i}."} for i in range(12)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--data", str(tmp_path / "rows.jsonl"), "--start-from", str(policy), "--batch-size", "4"]
    assert ppolm(["sft", *flags, "--output", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "training.json").read_text())["config"]["start_from"] == str(policy)
    assert "--model-name embedded" not in capsys.readouterr().out
    said = fails(capsys, "sft", *flags, "--output", str(tmp_path / "other"), "--model-name", "embedded")
    assert "means nothing on another base" in said
    assert not (tmp_path / "other").exists()


def test_what_does_not_go_together_is_refused(policy: Path, model_folder: Path, tmp_path: Path) -> None:
    start: dict[str, Any] = {"model_name": str(model_folder), "start_from": str(policy)}
    with pytest.raises(ConfigError, match=r"train is 'all', but start_from names an adapter.*ppolm export"):
        SFTConfig(**start, train="all")
    with pytest.raises(ConfigError, match="both name the adapter to start from"):
        RewardConfig(**start, sft_adapter="sft")
    with pytest.raises(ConfigError, match="trainable_layers is for new adapters; start_from has layers of its own"):
        SFTConfig(**start, trainable_layers=1)
    with pytest.raises(RunFolderError, match="is not a run folder"):
        make("reward", model_name=str(model_folder), start_from=str(tmp_path))
