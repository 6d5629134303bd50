"""Same seed, same numbers; a run that is killed and resumed ends bit for bit like an uninterrupted one."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup import device
from ppolm.cli import train_command
from ppolm.cli.main import main as ppolm
from ppolm.config import PPOConfig
from ppolm.errors import ConfigError, RewardError, RunFolderError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.storage.metrics_log import read_metrics
from tests.conftest import spread
from tests.runs.compared_runs import STATEFUL, assert_same_run, numbers

MakeConfig = Callable[..., PPOConfig]
PROMPTS = [f"Prompt number {i} of some:" for i in range(14)]

# STATEFUL turns on everything that has a state.

REWARD = """
import os, pathlib, signal

calls = 0

def score(prompts, responses):
    global calls
    calls += 1
    armed = pathlib.Path(__file__).with_name("armed")
    if armed.exists() and calls == 7:  # evaluations at 0 and 2 and steps 1 to 4 are behind us
        armed.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return [sum(31 * i + t for i, t in enumerate(r.token_ids)) % 97 / 97 for r in responses]
"""


def command(*arguments: str) -> int | None:
    """The exit status of a command in its own process, which can be killed."""
    # A fork has torch loaded already, but forking with torch loaded works only on Linux.
    context: Any = get_context("fork" if sys.platform == "linux" else "spawn")
    child = context.Process(target=ppolm, args=(arguments,))
    child.start()
    child.join()
    status: int | None = child.exitcode
    return status


def test_killed_and_resumed_run_equals_the_uninterrupted_one_to_the_last_bit(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    (tmp_path / "reward.py").write_text(REWARD)
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    source = {"prompts": str(tmp_path / "prompts.txt"), "reward": (f"{tmp_path}/reward.py:score",)}
    whole = make_config(**STATEFUL, **source, run_name="whole")
    broken = make_config(**STATEFUL, **source, run_name="broken")
    for config in (whole, broken):
        config.to_yaml(tmp_path / f"{config.run_name}.yaml")
    assert command("train", "--config", str(tmp_path / "whole.yaml")) == 0
    (tmp_path / "armed").touch()
    assert command("train", "--config", str(tmp_path / "broken.yaml")) == -signal.SIGKILL
    runs = Path(whole.output_dir)
    assert [path.name for path in sorted((runs / "broken/checkpoints").iterdir())] == ["step-000000", "step-000003"]
    assert len(read_metrics(runs / "broken")) == 4  # step 4 was done but not in a checkpoint
    assert command("train", "--resume", str(runs / "broken")) == 0
    assert_same_run(runs / "whole", runs / "broken")
    best = [json.loads((runs / name / "best/best.json").read_text()) for name in ("whole", "broken")]
    assert best[0] == best[1]


def test_same_seed_same_numbers_and_another_seed_others(make_config: MakeConfig) -> None:
    runs = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        config = make_config(**STATEFUL, run_name=name, seed=seed)
        runs.append(PPOTrainer(config, reward=spread).train(PROMPTS).run_dir)
    assert_same_run(runs[0], runs[1])
    assert numbers(runs[0]) != numbers(runs[2])


def test_evaluation_does_not_disturb_training(make_config: MakeConfig) -> None:
    quiet = make_config(**(STATEFUL | {"run_name": "quiet", "eval_every": 6}))
    busy = make_config(**(STATEFUL | {"run_name": "busy", "eval_every": 1}))
    runs = [PPOTrainer(config, reward=spread).train(PROMPTS).run_dir for config in (quiet, busy)]
    assert numbers(runs[0]) == numbers(runs[1])


def test_an_earlier_checkpoint_can_be_named(make_config: MakeConfig) -> None:
    config = make_config(**STATEFUL)
    run = PPOTrainer(config, reward=spread).train(PROMPTS).run_dir
    before = numbers(run)
    results = PPOTrainer(config, reward=spread).train(PROMPTS, resume=run / "checkpoints" / "step-000003")
    assert [row["step"] for row in results.metrics] == [4, 5, 6]
    assert numbers(run) == before


def test_a_finished_run_can_be_extended(make_config: MakeConfig) -> None:
    PPOTrainer(make_config(max_steps=2), reward=spread).train(PROMPTS)
    longer = make_config(max_steps=3)
    results = PPOTrainer(longer, reward=spread).train(PROMPTS, resume=Path(longer.output_dir) / "run")
    assert results.steps == 3
    assert [row["step"] for row in read_metrics(results.run_dir)] == [1, 2, 3]


@pytest.mark.parametrize("fast_here", [False, True])
def test_a_resumed_run_multiplies_as_it_began_whatever_this_cpu_does_better(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, fast_here: bool
) -> None:
    def run(name: str, fast: bool, resume: bool = False) -> Path:
        monkeypatch.setattr(device, "multiplies_bfloat16", lambda: fast)
        trainer = PPOTrainer(
            make_config(**STATEFUL | {"ppo_epochs": 1}, dtype="bfloat16", run_name=name), reward=spread
        )
        checkpoint = Path(trainer.config.output_dir) / name / "checkpoints/step-000003"
        return trainer.train(PROMPTS, resume=checkpoint if resume else None).run_dir

    whole, other = run("whole", fast_here), run("other", not fast_here)
    assert numbers(whole) != numbers(other), "the precision of products changes the last bits"
    run("broken", fast_here)
    assert_same_run(whole, run("broken", not fast_here, resume=True))


def test_the_precision_that_auto_chose_is_noted_and_kept(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reward.py").write_text(REWARD)
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    source = {"prompts": str(tmp_path / "prompts.txt"), "reward": (f"{tmp_path}/reward.py:score",)}
    make_config(**source, max_steps=1).to_yaml(tmp_path / "auto.yaml")
    run = tmp_path / "runs/run"
    with monkeypatch.context() as elsewhere:  # a machine where auto chooses bfloat16
        elsewhere.setattr("ppolm.base_setup.base_setup.resolve_dtype", lambda *_: torch.bfloat16)
        train_command.main(["--config", str(tmp_path / "auto.yaml")])
    assert PPOConfig.from_yaml(run / "config.yaml").dtype == "bfloat16"
    for steps, file in ((2, ["--config", str(tmp_path / "auto.yaml")]), (3, [])):
        train_command.main([*file, "--max-steps", str(steps), "--resume", str(run)])
        state = json.loads((run / f"checkpoints/step-{steps:06d}/state.json").read_text())
        assert state["precision"]["weights"] == "bfloat16"
    trainer = PPOTrainer(make_config(**source, max_steps=4))  # auto is float32 for so small a model
    with pytest.raises(RunFolderError, match="dtype 'bfloat16' -> 'float32'"):
        trainer.train(PROMPTS, resume=run)


def test_resume_with_other_prompts_is_refused(make_config: MakeConfig) -> None:
    config = make_config(max_steps=1)
    run = PPOTrainer(config, reward=spread).train(PROMPTS).run_dir
    with pytest.raises(RunFolderError, match="started with other prompts"):
        PPOTrainer(config, reward=spread).train([*PROMPTS, "another"], resume=run)


def test_a_schedule_cannot_be_stretched_and_allowed_changes_are_kept(make_config: MakeConfig) -> None:
    run = PPOTrainer(make_config(lr_schedule="linear", max_steps=2), reward=spread).train(PROMPTS).run_dir
    with pytest.raises(RunFolderError, match="started for 2 steps"):
        PPOTrainer(make_config(lr_schedule="linear", max_steps=3), reward=spread).train(PROMPTS, resume=run)
    run = PPOTrainer(make_config(max_steps=2, run_name="constant"), reward=spread).train(PROMPTS).run_dir
    longer = make_config(max_steps=3, run_name="constant")
    PPOTrainer(longer, reward=spread).train(PROMPTS, resume=run)
    assert PPOConfig.from_yaml(run / "config.yaml").max_steps == 3


def test_a_checkpoint_copied_from_a_run_with_another_config_is_refused(make_config: MakeConfig) -> None:
    mine = PPOTrainer(make_config(max_steps=2), reward=spread).train(PROMPTS).run_dir
    other = PPOTrainer(make_config(max_steps=3, gamma=0.5, run_name="other"), reward=spread).train(PROMPTS).run_dir
    (other / "checkpoints" / "step-000003").rename(mine / "checkpoints" / "step-000003")
    with pytest.raises(RunFolderError, match=r"gamma 0\.5 -> 0\.99"):
        PPOTrainer(make_config(max_steps=4), reward=spread).train(PROMPTS, resume=mine)


def test_changed_data_columns_are_other_prompts(make_config: MakeConfig) -> None:
    config = make_config(max_steps=1)
    rows = [{"prompt": prompt, "label": 1} for prompt in PROMPTS]
    run = PPOTrainer(config, reward=spread).train(rows).run_dir
    with pytest.raises(RunFolderError, match="started with other prompts"):
        PPOTrainer(config, reward=spread).train([row | {"label": 2} for row in rows], resume=run)


def test_a_run_that_fails_in_its_first_step_can_be_resumed(make_config: MakeConfig) -> None:
    def broken(prompts: list[str], responses: list[str]) -> list[float]:
        raise ValueError("not today")

    config = make_config(max_steps=1, eval_every=0)
    with pytest.raises(RewardError, match="not today"):
        PPOTrainer(config, reward={"spread": broken}).train(PROMPTS)
    results = PPOTrainer(config, reward=spread).train(PROMPTS, resume=Path(config.output_dir) / "run")
    assert results.steps == 1


def test_a_trainer_that_has_trained_does_not_start_a_second_run(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(max_steps=1), reward=spread)
    trainer.train(PROMPTS)
    with pytest.raises(ConfigError, match="already taken 1 PPO steps"):
        trainer.train(PROMPTS)


@pytest.mark.parametrize("mode", ["batch", "running"])
def test_a_last_batch_of_one_response_trains_on_the_scale_of_the_others(make_config: MakeConfig, mode: str) -> None:
    def large(prompts: list[str], responses: list[Any]) -> list[float]:
        return [5000.0 + 1000.0 * score for score in spread(prompts, responses)]

    settings = {"normalize_rewards": mode, "batch_size": 2, "eval_every": 0, "checkpoint_every": 1}

    def train(name: str, resume: bool = False) -> Path:
        trainer = PPOTrainer(make_config(**settings, run_name=name, keep_checkpoints=9), reward=large)
        checkpoint = Path(trainer.config.output_dir) / name / "checkpoints/step-000003"
        return trainer.train(PROMPTS[:11], resume=checkpoint if resume else None).run_dir

    whole = train("whole")
    steps = read_metrics(whole)
    assert [row["num_responses"] for row in steps] == [2, 2, 2, 2, 2, 1]
    assert steps[-1]["value_loss"] < 10 * max(row["value_loss"] for row in steps[:-1])
    train("broken")
    assert_same_run(whole, train("broken", resume=True))
