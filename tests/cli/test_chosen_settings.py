"""The command line does what it says: as many steps as asked for, the same recipe however a flag is spelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.settings import parse_supervised, parse_train
from ppolm.config import PPOConfig, SFTConfig
from ppolm.embedded import DEMO
from ppolm.ppo_trainer import PPOTrainer
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]
SPELLINGS = (
    ["--model-name", "embedded"],
    ["--model-name=embedded"],
    ["--model_name", "embedded"],
    ["--model_name=embedded"],
    ["--model-name", "other", "--model-name", "embedded"],
)


def test_max_steps_alone_decides_how_long_a_run_is(make_config: MakeConfig) -> None:
    """Six prompts make two steps per epoch, and num_epochs is not set."""
    results = PPOTrainer(make_config(max_steps=5, eval_every=0), reward=spread).train(PROMPTS)
    assert results.steps == 5
    assert [row["num_responses"] for row in results.metrics] == [4, 4, 4, 4, 4], "passes follow without a gap"


def test_a_run_without_a_length_is_one_pass(make_config: MakeConfig) -> None:
    assert PPOTrainer(make_config(eval_every=0), reward=spread).train(PROMPTS).steps == 2


@pytest.mark.parametrize("in_python", [True, False])
def test_passes_that_somebody_chose_end_the_run_and_it_says_so_before_it_starts(
    make_config: MakeConfig, caplog: Any, in_python: bool
) -> None:
    config = make_config(max_steps=5, num_epochs=None if in_python else 1, eval_every=0)
    trainer = PPOTrainer(config, reward=spread)
    assert trainer.train(PROMPTS, *([1] if in_python else [])).steps == 2
    (line,) = (record.getMessage() for record in caplog.records if "max_steps" in record.getMessage())
    assert line == "the run ends after 2 steps, not max_steps 5: num_epochs is 1. Leave num_epochs out, or raise it."


def test_a_run_can_be_extended_beyond_its_first_pass(make_config: MakeConfig) -> None:
    run = PPOTrainer(make_config(eval_every=0), reward=spread).train(PROMPTS).run_dir
    longer = PPOTrainer(make_config(eval_every=0, max_steps=5), reward=spread)
    assert longer.train(PROMPTS, resume=run).steps == 5


@pytest.mark.parametrize("flags", SPELLINGS, ids=" ".join)
def test_the_recipe_does_not_depend_on_how_a_flag_is_written(flags: list[str], tmp_path: Path) -> None:
    assert parse_train(flags).settings == PPOConfig.from_yaml(DEMO)
    needed = ["--data", "embedded", "--output", str(tmp_path / "new")]
    recipe, _ = parse_supervised(SFTConfig, "ppolm sft", [*SPELLINGS[0], *needed])
    assert parse_supervised(SFTConfig, "ppolm sft", [*flags, *needed])[0] == recipe
    assert recipe.lora_r != SFTConfig().lora_r


def test_a_config_file_is_read_however_its_flag_is_written(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("learning_rate: 0.5\n")
    for flags in (["--config", f"{tmp_path}/c.yaml"], [f"--config={tmp_path}/c.yaml"]):
        assert parse_train(flags).settings.learning_rate == 0.5
        assert parse_train([*flags, "--learning_rate", "0.25"]).settings.learning_rate == 0.25


def test_a_flag_without_its_value_is_an_error_and_not_a_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_train(["--config"])
    assert ended.value.code == 2
    assert "--config" in capsys.readouterr().err


def test_own_prompts_are_not_measured_on_the_embedded_worlds_posts_and_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--model_name", "embedded", "--prompts", "mine.jsonl"]
    chosen = parse_train(own).settings
    assert (chosen.prompts, chosen.eval_prompts, chosen.judge) == ("mine.jsonl", None, None)
    assert chosen.learning_rate == PPOConfig.from_yaml(DEMO).learning_rate, "what fits the model stays"
    (line,) = capsys.readouterr().err.splitlines()
    assert "embedded:validation" in line
    assert "gold" in line
    assert "--reward" in line, "its reward model knows the embedded world alone"
    both = parse_train([*own, "--judge", "gold", "--eval-prompts", "embedded:test"]).settings
    assert (both.judge, both.eval_prompts) == ("gold", "embedded:test"), "what is asked for is kept"


@pytest.mark.parametrize("prompts", ["embedded", "embedded:train"])
def test_prompts_of_the_embedded_world_keep_its_judge(prompts: str, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = parse_train(["--model-name", "embedded", "--prompts", prompts]).settings
    assert (chosen.judge, chosen.eval_prompts) == ("gold", "embedded:validation")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flags", [["--reward", "r.py:f"], ["--reward-model", "runs/mine"]])
def test_an_own_reward_is_not_said_to_be_the_embedded_one(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parse_train(["--model-name", "embedded", "--prompts", "mine.jsonl", *flags])
    (line,) = capsys.readouterr().err.splitlines()
    assert "reward model" not in line
