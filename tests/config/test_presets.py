"""Presets: every value has a reason and an effect, and flags, file and defaults stand around them in order."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ppolm.cli.settings import parse_train
from ppolm.config import PPOConfig
from ppolm.config.presets import PRESETS, preset_values
from ppolm.embedded import DEMO
from ppolm.errors import ConfigError
from scripts import presets_page


@pytest.mark.parametrize("name", PRESETS)
def test_every_value_is_valid_differs_from_the_default_and_has_a_reason(name: str) -> None:
    preset = PRESETS[name]
    assert PPOConfig.from_preset(name).to_dict() == {**PPOConfig().to_dict(), **preset.values}
    assert preset.values.keys() == preset.reasons.keys()
    assert not [key for key, value in preset.values.items() if value == getattr(PPOConfig, key)]


def test_the_demo_preset_is_what_the_demo_uses() -> None:
    task = ("model_name", "reward", "judge", "prompts", "eval_prompts", "max_steps")
    used = {name: value for name, value in yaml.safe_load(DEMO.read_text()).items() if name not in task}
    usual = {name: getattr(PPOConfig, name) for name in used}
    assert {name: value for name, value in used.items() if value != usual[name]} == PRESETS["demo"].values


def test_the_documents_preset_is_the_defaults() -> None:
    assert parse_train(["--preset", "documents"]).settings == PPOConfig()


def test_a_flag_overrides_the_file_which_overrides_the_preset_which_overrides_the_default(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("learning_rate: 0.5\nkl_coef: 0.7\n")
    flags = ["--preset", "lora-small", "--config", f"{tmp_path}/run.yaml", "--kl-coef", "0.9"]
    chosen = parse_train(flags).settings
    assert (chosen.kl_coef, chosen.learning_rate, chosen.top_k, chosen.lam) == (0.9, 0.5, 0, 0.95)


def test_a_preset_for_the_embedded_model_keeps_its_task_and_not_its_recipe() -> None:
    chosen = parse_train(["--model-name", "embedded", "--preset", "lora-small"]).settings
    task = {"model_name": "embedded", "judge": "gold", "eval_prompts": "embedded:validation", "max_steps": 30}
    expected = PPOConfig().to_dict() | preset_values("lora-small") | task
    assert {**chosen.to_dict(), "prompts": None} == expected


@pytest.mark.parametrize("given", ["lora_small", "lora-tiny", "x" * 500])
def test_a_preset_that_is_not_there_is_said(given: str) -> None:
    with pytest.raises(ConfigError, match=r"There is no preset .* There are lora-small, lora-large, demo, documents"):
        parse_train(["--preset", given])
    with pytest.raises(ConfigError, match="Did you mean lora-small"):
        preset_values("lora_small")


def test_a_resumed_run_takes_no_preset(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--resume keeps the settings"):
        parse_train(["--resume", str(tmp_path), "--preset", "demo"])


def test_the_page_of_presets_is_up_to_date() -> None:
    assert presets_page.PAGE.read_text(encoding="utf-8") == presets_page.page(), "run python -m scripts.presets_page"
