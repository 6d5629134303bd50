"""A setting that would have no effect is refused; what older runs stored still loads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ppolm.cli.main import run as ppolm
from ppolm.cli.overopt_command import sweep_one
from ppolm.cli.settings import parse_train
from ppolm.config import PPOConfig
from ppolm.config.without_effect import RULES, defaults, without_idle
from ppolm.embedded import DEMO
from ppolm.errors import ConfigError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.storage.stored_run import read_run_config
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]

IDLE: dict[str, dict[str, Any]] = {
    "start_reference": {"start_reference": "policy"},
    "start_value": {"start_value": False},
    "sft_adapter": {"sft_adapter": "sft", "start_from": "run", "start_reference": "policy"},
    "value_init": {"value_init": "reward", "start_from": "run", "reward_model": ("rm",)},
    "patience": {"patience": 3, "eval_every": 0},
    "min_delta": {"min_delta": 0.1, "eval_every": 0},
    "judge": {"judge": "gold", "eval_every": 0},
    "stop_on_alarm": {"stop_on_alarm": False, "eval_every": 0},
    "eval_prompts": {"eval_prompts": "held.jsonl", "eval_every": 0},
    "eval_fraction": {"eval_fraction": 0.3, "eval_prompts": "held.jsonl"},
    "max_eval_prompts": {"max_eval_prompts": 3, "eval_every": 0},
    "collapse_reward_drop": {"collapse_reward_drop": 2.0, "eval_every": 0},
    "collapse_kl": {"collapse_kl": 2.0, "eval_every": 0},
    "collapse_entropy": {"collapse_entropy": 0.1, "eval_every": 0},
    "collapse_length": {"collapse_length": 2.0, "eval_every": 0},
    "judge_drop": {"judge_drop": 2.0},
    "reward_model": {"reward_model": ("rm",), "reward": ("gold",)},
    "reward_std_penalty": {"reward_std_penalty": 1.0, "reward_model": ("rm",)},
    "feedback_store": {"feedback_store": "other.db"},
    "human_timeout": {"human_timeout": 5.0},
    "human_fallback": {"human_fallback": "model", "reward_model": ("rm",)},
    "reward_retries": {"reward_retries": 9, "reward": ("gold",)},
    "default_reward": {"default_reward": -1.0},
    "adaptive_kl": {"adaptive_kl": True, "kl_coef": 0.0},
    "kl_target": {"kl_target": 3.0},
    "kl_horizon": {"kl_horizon": 100},
    "engine_url": {"engine_url": ("http://a:1",)},
    "engine_folder": {"engine_folder": "shared"},
    "engine_timeout": {"engine_timeout": 5.0},
    "async_rollouts": {"async_rollouts": True},
    "importance_cap": {"importance_cap": 3.0},
    "importance_sequence_cap": {"importance_sequence_cap": 3.0},
}
ACTING: dict[str, dict[str, Any]] = {
    "a judge asks the reward model": {"reward": ("gold",), "judge": "model", "reward_model": ("rm",)},
    "people are stood in for": {"reward": ("human",), "human_fallback": "model", "reward_model": ("rm",)},
    "values start from it": {"reward": ("gold",), "value_init": "reward", "reward_model": ("rm",)},
    "a run to start from": {"start_from": "run", "start_reference": "policy", "start_value": False},
    "a new value model": {"start_from": "run", "start_value": False, "value_init": "reward", "reward_model": ("rm",)},
    "one of several rewards": {"reward": ("gold", "model"), "reward_model": ("a", "b"), "reward_std_penalty": 1.0},
    "a served judge": {"judge": "http://localhost:1/score", "reward_retries": 9},
    "people as judges": {"judge": "human", "feedback_store": "other.db", "human_timeout": 5.0},
    "a default that is used": {"on_reward_error": "default", "default_reward": -1.0},
    "a server": {"engine": "vllm", "engine_url": ("http://a:1",), "engine_timeout": 5.0, "importance_cap": 3.0},
    "defaults, said aloud": {"kl_target": 6.0, "kl_horizon": 10_000, "eval_every": 0, "patience": None},
}


@pytest.mark.parametrize("name", IDLE)
def test_a_setting_that_cannot_act_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        PPOConfig(**IDLE[name])


def test_every_rule_has_a_test() -> None:
    assert {name for names, _, _ in RULES for name in names} == set(IDLE)


@pytest.mark.parametrize("name", ACTING)
def test_a_setting_that_can_act_is_not_refused(name: str) -> None:
    PPOConfig(**ACTING[name])


@pytest.mark.parametrize("name", IDLE)
def test_what_an_older_run_stored_still_loads_without_what_never_acted(tmp_path: Path, name: str) -> None:
    stored = PPOConfig().to_dict() | json.loads(json.dumps(IDLE[name]))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(stored))
    loaded = read_run_config(tmp_path).to_dict()
    assert loaded[name] == PPOConfig().to_dict()[name]
    kept = {key: value for key, value in loaded.items() if key not in IDLE[name]}
    assert kept == {key: value for key, value in stored.items() if key not in IDLE[name]}


def test_what_is_left_out_may_leave_another_without_a_use() -> None:
    stored = {"eval_every": 0, "judge": "model", "reward": ["gold"], "reward_model": ["a", "b"]}
    kept = without_idle(stored | {"reward_std_penalty": 1.0}, defaults(PPOConfig))
    assert kept == {
        "eval_every": 0,
        "judge": None,
        "reward": ["gold"],
        "reward_model": (),
        "reward_std_penalty": 0.0,
    }


def test_an_older_run_with_idle_settings_is_resumed_and_evaluated(
    make_config: MakeConfig, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "p.txt").write_text("\n".join(PROMPTS))
    reward = ("tests.conftest:spread",)
    config = make_config(reward=reward, prompts=str(tmp_path / "p.txt"), eval_every=0, max_steps=1, checkpoint_every=1)
    run = PPOTrainer(config).train(PROMPTS).run_dir
    idle = {"judge": "tests.conftest:vowels", "patience": 3, "reward_model": ["gone"], "kl_target": 2.0}
    stored = yaml.safe_load((run / "config.yaml").read_text()) | idle
    (run / "config.yaml").write_text(yaml.safe_dump(stored))
    assert ppolm(["train", "--resume", str(run), "--max-steps", "2"]) == 0
    held = ["--prompts", str(tmp_path / "p.txt"), "--judge", "tests.conftest:vowels", "--json"]
    capsys.readouterr()
    assert ppolm(["eval", str(run), *held]) == 0
    assert json.loads(capsys.readouterr().out)["policy"]["judge"] >= 0, "an evaluation is asked for, so it has a judge"


def test_a_reward_from_python_beside_a_reward_model_that_nobody_asks_is_refused(make_config: MakeConfig) -> None:
    with pytest.raises(ConfigError, match="reward_model is given, but nothing asks for it"):
        PPOTrainer(make_config(reward_model=("rm",)), reward=spread)


def test_the_recipe_gives_way_to_what_is_asked_for() -> None:
    chosen = parse_train(["--model-name", "embedded", "--eval-every", "0"]).settings
    assert (chosen.judge, chosen.eval_prompts, chosen.eval_every) == (None, None, 0)
    assert parse_train(["--model-name", "embedded", "--reward", "gold"]).settings.reward == ("gold",)
    assert parse_train(["--model-name", "embedded"]).settings == PPOConfig.from_yaml(DEMO)


def test_a_sweep_takes_a_config_that_adapts_its_coefficient_and_needs_evaluations(tmp_path: Path, capsys: Any) -> None:
    swept = PPOConfig.from_yaml(DEMO).changed(adaptive_kl=True, kl_target=3.0)
    assert swept.changed(adaptive_kl=False, kl_coef=0.0).kl_target == 6.0
    swept.to_yaml(tmp_path / "adaptive.yaml")
    flags = ["overopt", "--config", str(tmp_path / "adaptive.yaml"), "--output", str(tmp_path / "sweep")]
    assert ppolm([*flags, "--eval-every", "0"]) == 1
    assert "evaluations are the points" in capsys.readouterr().err


def test_a_sweep_that_would_hold_no_prompts_out_is_refused_before_it_trains(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    (tmp_path / "p.txt").write_text("\n".join(PROMPTS[:3]))
    config = make_config(prompts=str(tmp_path / "p.txt"), reward=("tests.conftest:spread",), judge="gold")
    with pytest.raises(ConfigError, match=r"eval_fraction 0\.1 of 3 prompts holds none out"):
        sweep_one(config)


def test_a_sweep_whose_prompts_are_too_long_to_hold_any_out_is_refused_before_it_trains(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of six prompts would be held out, but three of them are skipped first."""
    monkeypatch.setattr(PPOTrainer, "train", None)
    (tmp_path / "p.txt").write_text("\n".join([*PROMPTS[:3], *(f"{number} " + "long " * 100 for number in range(3))]))
    config = make_config(prompts=str(tmp_path / "p.txt"), reward=("tests.conftest:spread",), judge="gold")
    with pytest.raises(ConfigError, match="no points to draw"):
        sweep_one(config.changed(long_prompts="skip"))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--kl-coefs"], "kl_coefs is empty"),
        (["--kl-coefs", "0.1", "0.1"], "names a value twice"),
        (["--kl-coefs", "0.1", "0.10000001"], "names a value twice"),
        (["--steps", "0"], "max_steps is 0, expected at least 1"),
        (["--eval-every", "-1"], "expected at least 1"),
    ],
)
def test_a_sweep_that_could_draw_nothing_is_refused_before_it_trains(
    flags: list[str], expected: str, tmp_path: Path, capsys: Any
) -> None:
    assert ppolm(["overopt", *flags, "--output", str(tmp_path / "sweep")]) == 1
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_a_sweep_that_evaluates_less_often_than_it_trains_has_two_points(tmp_path: Path) -> None:
    small = {"batch_size": 4, "minibatch_size": 4, "max_eval_prompts": 4, "log_to": ()}
    PPOConfig.from_yaml(DEMO).changed(**small).to_yaml(tmp_path / "small.yaml")
    flags = ["overopt", "--config", str(tmp_path / "small.yaml"), "--kl-coefs", "0", "--steps", "1"]
    assert ppolm([*flags, "--eval-every", "100", "--output", str(tmp_path / "sweep")]) == 0
    (curve,) = json.loads((tmp_path / "sweep" / "overopt.json").read_text())
    assert [row["step"] for row in curve["evaluations"]] == [0, 1]
