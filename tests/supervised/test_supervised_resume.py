"""Interrupted SFT and reward-model training resumes bit for bit, and only with its original settings and data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup import device
from ppolm.cli.main import run
from ppolm.config import RewardConfig
from ppolm.errors import RunFolderError
from ppolm.storage.output_folder import CHECKPOINT, SETTINGS
from ppolm.supervised import RewardTrainer
from ppolm.supervised.supervised_trainer import SupervisedTrainer
from tests.supervised.small_trainings import PREFERENCES, SLOW, flags, trainer


def interrupt(training: SupervisedTrainer[Any], after: int, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = training.updater.update

    def until(*arguments: Any) -> Any:
        if training.step == after:
            raise KeyboardInterrupt
        return update(*arguments)

    monkeypatch.setattr(training.updater, "update", until)
    with pytest.raises(KeyboardInterrupt):
        training.train(checkpoint)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("sft", {}),
        ("reward", {}),
        ("sft", {"trainable_layers": 1}),
        ("reward", {"trainable_layers": 1, "head_init": "fit"}),
    ],
)
def test_an_interrupted_training_ends_with_the_same_bits(
    kind: str, changes: dict[str, Any], model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trainer(kind, model_folder, **changes)
    history = whole.train()
    interrupt(trainer(kind, model_folder, **changes), 10, tmp_path / "checkpoint", monkeypatch)
    assert json.loads((tmp_path / "checkpoint" / "state.json").read_text())["step"] == 8
    resumed = trainer(kind, model_folder, **changes)
    assert resumed.train(tmp_path / "checkpoint") == history
    steps = [json.loads((tmp_path / "checkpoint" / "state.json").read_text())["step"], resumed.step]
    assert steps == [whole.total_steps] * 2, "what comes after the training can be stopped without losing any of it"
    for name, value in whole.model.parameters().items():
        assert torch.equal(value, resumed.model.parameters()[name]), name


@pytest.mark.parametrize("kind", ["sft", "reward"])
def test_it_goes_on_in_the_precision_it_began_with(
    kind: str, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(fast: bool) -> SupervisedTrainer[Any]:
        monkeypatch.setattr(device, "multiplies_bfloat16", lambda: fast)
        return trainer(kind, model_folder, dtype="bfloat16", trainable_layers=1)

    history = begin(True).train()
    interrupt(begin(True), 10, tmp_path / "checkpoint", monkeypatch)
    assert begin(False).train(tmp_path / "checkpoint") == history
    with pytest.raises(RunFolderError, match="Set dtype: bfloat16"):
        trainer(kind, model_folder, trainable_layers=1).train(tmp_path / "checkpoint")


def test_other_rows_are_refused(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(trainer("reward", model_folder), 6, tmp_path / "checkpoint", monkeypatch)
    others = RewardTrainer(RewardConfig(model_name=str(model_folder), **SLOW), PREFERENCES[:-1])
    with pytest.raises(RunFolderError, match="a training on other rows"):
        others.train(tmp_path / "checkpoint")


def test_a_damaged_checkpoint_is_named(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(trainer("sft", model_folder), 6, tmp_path / "checkpoint", monkeypatch)
    weights = tmp_path / "checkpoint" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(RunFolderError, match=r"weights.safetensors is not as it was written"):
        trainer("sft", model_folder).train(tmp_path / "checkpoint")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [{"prompt": row.prompt.content, "chosen": row.chosen, "rejected": row.rejected} for row in PREFERENCES]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_the_command_resumes_its_own_folder_and_refuses_other_settings(
    model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output, other = tmp_path / "out", tmp_path / "other"
    save = SupervisedTrainer.save

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SupervisedTrainer, "save", stop)
    assert run(flags(model_folder, rows, output)) == 130
    assert f"Resume with: ppolm reward --resume {output}\n" in capsys.readouterr().err
    assert {path.name for path in output.iterdir()} == {SETTINGS[RewardConfig], CHECKPOINT}
    (output / "notes.txt").write_text("mine")
    moved = output.rename(tmp_path / "moved")
    output = moved
    monkeypatch.setattr(SupervisedTrainer, "save", save)
    assert run(flags(model_folder, rows, output)) == 1
    assert f"or resume it: --resume {output}" in capsys.readouterr().err
    assert run(["reward", "--resume", str(output), "--learning-rate", "1"]) == 1
    assert "learning_rate 0.01 -> 1.0" in capsys.readouterr().err
    assert run(["reward", "--resume", str(output)]) == 0
    assert run(flags(model_folder, rows, other)) == 0
    for name in ("adapter_model.safetensors", "head.safetensors", "reward.json"):
        assert (output / name).read_bytes() == (other / name).read_bytes()
    assert not (output / CHECKPOINT).exists()
    assert (output / "notes.txt").read_text() == "mine"
    assert run(["reward", "--resume", str(output)]) == 1
    assert "is finished" in capsys.readouterr().err
    assert run(["reward", "--resume", str(rows.parent)]) == 1
    assert "holds no interrupted training" in capsys.readouterr().err


def test_a_crash_between_two_renames_of_a_checkpoint_loses_nothing(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "checkpoint"
    interrupt(trainer("sft", model_folder), 6, checkpoint, monkeypatch)
    checkpoint.rename(tmp_path / ".checkpoint.old")
    resumed = trainer("sft", model_folder)
    steps: list[int] = []
    update = resumed.updater.update

    def watched(*arguments: Any) -> Any:
        steps.append(resumed.step)
        return update(*arguments)

    monkeypatch.setattr(resumed.updater, "update", watched)
    resumed.train(checkpoint)
    assert steps[0] == 4


def test_patience_counts_on_over_an_interruption(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"learning_rate": 0.0, "patience": 2, "eval_every": 2, "num_epochs": 9}
    whole = trainer("sft", model_folder, **settings)
    history = whole.train()
    assert [row["step"] for row in history] == [0, 2, 4]
    interrupt(
        trainer("sft", model_folder, **settings | {"checkpoint_every": 2}), 3, tmp_path / "checkpoint", monkeypatch
    )
    resumed = trainer("sft", model_folder, **settings | {"checkpoint_every": 2})
    assert resumed.train(tmp_path / "checkpoint") == history


def test_settings_of_another_command_and_another_config_are_refused(
    model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SupervisedTrainer, "train", stop)
    assert run(flags(model_folder, rows, tmp_path / "out")) == 130
    assert run(["sft", "--resume", str(tmp_path / "out")]) == 1
    assert "It is one of `ppolm reward`" in capsys.readouterr().err
    assert run(["reward", "--resume", str(tmp_path / "out"), "--config", "other.yaml"]) == 1
    assert "Leave --config out" in capsys.readouterr().err
