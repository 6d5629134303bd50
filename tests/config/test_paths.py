"""A run can be used from any folder, and a folder that does not exist gets a suggestion."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.config.paths import anchored, did_you_mean
from ppolm.rewards.build import labels
from ppolm.storage.metrics_log import read_metrics
from ppolm.supervised.supervised_trainer import SupervisedTrainer
from tests.conftest import PROMPTS

TINY = ["--batch-size", "2", "--minibatch-size", "2", "--max-new-tokens", "4", "--lora-r", "2", "--log-to"]
SUPERVISED = ["--batch-size", "2", "--lora-r", "2", "--eval-fraction", "0.3", "--checkpoint-every", "1"]
SCORE = "def score(prompts, responses):\n    return [float(len(r)) for r in responses]\n"


@pytest.fixture
def project(tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, data and a reward, which commands refer to by relative paths from inside it."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    shutil.copytree(model_folder, project / "model")
    elsewhere.mkdir()
    (project / "prompts.txt").write_text("\n".join(PROMPTS))
    rows = [{"prompt": p, "completion": " good", "chosen": " good", "rejected": " bad"} for p in PROMPTS]
    (project / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (project / "reward.py").write_text(SCORE)
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def elsewhere(project: Path) -> Path:
    return project.parent / "elsewhere"


def train(*flags: str) -> int:
    names = ["--model-name", "model", "--prompts", "prompts.txt", "--reward", "reward.py:score", "--run-name", "run"]
    return ppolm(["train", *names, *TINY, *flags])


def test_a_run_is_evaluated_sampled_from_and_resumed_from_another_folder(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    assert train("--judge", "reward.py:score", "--eval-fraction", "0.4", "--max-steps", "1") == 0
    run = project / "runs" / "run"
    adapter = json.loads((run / "best" / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == str(project / "model")
    monkeypatch.chdir(elsewhere)
    assert ppolm(["eval", str(run)]) == 0
    assert ppolm(["generate", "--run", str(run), "--prompt", "Hello"]) == 0
    assert ppolm(["train", "--resume", str(run), "--max-steps", "2"]) == 0
    assert len(read_metrics(run)) == 2
    assert "was trained on" not in caplog.text


def test_a_place_that_is_written_in_another_way_is_no_change(project: Path, capsys: Any) -> None:
    assert train("--max-steps", "1", "--eval-every", "0") == 0
    resume = ["train", "--resume", "runs/run", "--max-steps", "2"]
    assert ppolm([*resume, "--model-name", "./model", "--reward", "../project/reward.py:score"]) == 0
    shutil.copytree(project / "model", project / "other")
    assert ppolm([*resume, "--model-name", "other"]) == 1
    assert f"model_name '{project}/model' -> '{project}/other'" in capsys.readouterr().err


def test_a_run_with_relative_paths_from_before_is_still_resumed_where_it_was_started(project: Path) -> None:
    assert train("--max-steps", "1", "--eval-every", "0") == 0
    file = project / "runs" / "run" / "config.yaml"
    file.write_text(file.read_text().replace(f"{project}/", ""))
    assert yaml.safe_load(file.read_text())["model_name"] == "model"
    assert ppolm(["generate", "--run", "runs/run", "--prompt", "Hello"]) == 0
    assert ppolm(["train", "--resume", "runs/run", "--max-steps", "2"]) == 0


@pytest.mark.parametrize("command", ["sft", "reward"])
def test_a_supervised_training_is_resumed_from_another_folder(
    command: str, project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = SupervisedTrainer.save

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SupervisedTrainer, "save", stop)
    assert ppolm([command, "--model-name", "model", "--data", "rows.jsonl", "--output", "out", *SUPERVISED]) == 130
    monkeypatch.setattr(SupervisedTrainer, "save", save)
    monkeypatch.chdir(elsewhere)
    assert ppolm([command, "--resume", str(project / "out")]) == 0
    adapter = json.loads((project / "out" / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == str(project / "model")
    if command == "reward":
        assert ppolm(["readiness", str(project / "out"), "--data", str(project / "rows.jsonl")]) == 0


def test_names_that_are_no_places_stay_as_they_are(project: Path) -> None:
    (project / "model" / "human").mkdir()  # a folder may have the name of a reward or a module
    names = {
        "model_name": "Qwen/Qwen3-0.6B-Base",
        "reward_model": ["embedded", "gone/reward"],
        "prompts": "embedded:train",
        "eval_prompts": "trl-lib/tldr",
        "reward": ["model", "human", "model:score", "https://localhost/score", "gone.py:score"],
        "judge": None,
        "feedback_store": "postgresql://ann@host/db",
        "output_dir": "runs",
        "seed": 3,
    }
    assert anchored(names) == names


def test_every_setting_that_names_a_place_is_anchored(project: Path) -> None:
    config = PPOConfig(
        model_name="model",
        sft_adapter="./model",
        reward_model=("model",),
        prompts="prompts.txt",
        eval_prompts="rows.jsonl",
        reward=("model", "human", "reward.py:score"),
        judge="reward.py:score",
    ).anchored()
    assert (config.model_name, config.sft_adapter, config.reward_model) == (
        f"{project}/model",
        f"{project}/model",
        (f"{project}/model",),
    )
    assert (config.prompts, config.eval_prompts) == (f"{project}/prompts.txt", f"{project}/rows.jsonl")
    assert config.reward == ("model", "human", f"{project}/reward.py:score")
    assert config.judge == f"{project}/reward.py:score"
    assert config.feedback_store == f"{project}/feedback.db", "people are asked through one store, wherever it resumes"
    data = RewardConfig(data=("rows.jsonl",), eval_data=("model:test",), test_data=("rows.jsonl",)).anchored()
    assert (data.data, data.eval_data) == ((f"{project}/rows.jsonl",), (f"{project}/model:test",))
    assert SFTConfig(data=("embedded",)).anchored().data == ("embedded",)
    assert PPOConfig().anchored() == PPOConfig()


def test_a_config_names_what_lies_beside_it_and_else_what_is_in_the_current_folder(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "configs").mkdir()
    (project / "configs" / "c.yaml").write_text("prompts: ../prompts.txt\neval_prompts: mine.txt\n")
    (elsewhere / "mine.txt").write_text("one")
    monkeypatch.chdir(elsewhere)
    config = PPOConfig.from_yaml(project / "configs" / "c.yaml")
    assert (config.prompts, config.eval_prompts) == (f"{project}/prompts.txt", "mine.txt")
    assert config.anchored().eval_prompts == f"{elsewhere}/mine.txt"


def test_metrics_name_rewards_in_files_without_their_folders() -> None:
    assert labels(["model", "/a/b/r.py:f", "http://host/x"]) == ["model", "r.py:f", "http://host/x"]
    assert labels(["/a/r.py:f", "/b/r.py:f"]) == ["/a/r.py:f", "/b/r.py:f"]


def test_a_missing_folder_is_guessed(project: Path) -> None:
    (project / "runs" / "cheer2" / "checkpoints" / "step-000010").mkdir(parents=True)
    assert did_you_mean("cheer2") == " Did you mean runs/cheer2?"
    assert did_you_mean("cheer2/checkpoints/step-000010") == " Did you mean runs/cheer2/checkpoints/step-000010?"
    assert did_you_mean("runs/cheer") == " Did you mean runs/cheer2?"
    assert did_you_mean("cheer") == " Did you mean runs/cheer2?"
    assert did_you_mean("runs/cheer2") == did_you_mean("something") == did_you_mean("x" * 400) == ""


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "cheer2"],
        ["generate", "--run", "cheer2", "--prompt", "x"],
        ["generate", "--model-name", "model", "--adapter", "cheer2", "--prompt", "x"],
        ["train", "--resume", "cheer2"],
        ["train", "--resume", "cheer2/checkpoints/step-000010"],
        ["train", "--model-name", "model", "--prompts", "prompts.txt", "--reward-model", "cheer2"],
        ["train", "--model-name", "model", "--prompts", "prompts.txt", "--sft-adapter", "cheer2"],
        ["sft", "--resume", "cheer2"],
        ["reward", "--resume", "cheer2"],
        ["readiness", "cheer2", "--data", "embedded:validation"],
    ],
    ids=" ".join,
)
def test_every_command_guesses_the_folder_that_was_meant(
    command: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "runs" / "cheer2" / "checkpoints" / "step-000010").mkdir(parents=True)
    assert ppolm(command) == 1
    assert "Did you mean runs/cheer2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["reward_model", "num_epochs", "sft_adapter", "prompts", "reward_weights"])
def test_null_in_a_config_is_the_none_that_the_help_speaks_of(name: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"{name}: null\n")
    assert PPOConfig.from_yaml(tmp_path / "c.yaml") == PPOConfig()
    (tmp_path / "r.yaml").write_text("data: null\neval_data:\nmax_reference_rows: null\n")
    assert RewardConfig.from_yaml(tmp_path / "r.yaml") == RewardConfig(max_reference_rows=None)
