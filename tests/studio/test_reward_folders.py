"""Reward models are found below the studio's folders and through the settings of its runs, whatever else lies there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ppolm.embedded import REWARD
from ppolm.studio.reward_folders import RewardFolder, at_a_glance, find_reward_models, in_full, named_by


def make_reward_model(folder: Path, **training: Any) -> Path:
    """The files by which a reward model is known."""
    folder.mkdir(parents=True)
    (folder / "reward.json").write_text(json.dumps({"mean": 1.0, "std": 2.0, "max_tokens": 512}))
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "some/base"}))
    if training:
        (folder / "training.json").write_text(json.dumps(training))
    return folder


def test_finished_unfinished_and_given_ones_are_found_below_a_folder(tmp_path: Path) -> None:
    make_reward_model(tmp_path / "a" / "finished", config={"model_name": "embedded", "data": ["rows.jsonl"]})
    make_reward_model(tmp_path / "given")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "reward-settings.yaml").write_text("data: [rows.jsonl]\n")
    make_reward_model(tmp_path / "given" / "inside")  # what a reward model holds is its own
    make_reward_model(tmp_path / ".hidden")
    make_reward_model(tmp_path / "1" / "2" / "3" / "too-deep")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    found = find_reward_models([tmp_path, tmp_path / "a", tmp_path / "nowhere"], {}, {})
    seen = [at_a_glance(one) for one in found.values()]
    assert {row["name"]: row["state"] for row in seen} == {
        "begun": "unfinished",
        "finished": "finished",
        "given": "given",
    }
    assert {row["name"]: row["model_name"] for row in seen}["given"] == "some/base"
    assert all("/" not in name and one.id == name for name, one in found.items())


def test_two_of_the_same_name_have_ids_of_their_own_that_stay(tmp_path: Path) -> None:
    for place in ("a", "b"):
        make_reward_model(tmp_path / place / "same <name>")
    first, again = (find_reward_models([tmp_path], {}, {}) for _ in range(2))
    assert len(first) == 2
    assert list(first) == list(again)
    assert all(name.startswith("same-name~") for name in first)


def test_a_run_brings_the_reward_models_it_was_trained_on(tmp_path: Path) -> None:
    elsewhere = make_reward_model(tmp_path / "elsewhere" / "mine")
    runs = {"run-1": tmp_path / "runs" / "1", "run-2": tmp_path / "runs" / "2"}
    settings: dict[str, dict[str, Any]] = {
        "run-1": {"reward": ["model"], "reward_model": [str(elsewhere), "relative/path", str(tmp_path / "gone"), 7]},
        "run-2": {"reward": ["model"], "model_name": "embedded", "reward_model": []},
        "gone": {"reward_model": [str(elsewhere)]},
    }
    found = find_reward_models([tmp_path / "runs"], runs, settings)
    assert {one.path: one.runs for one in found.values()} == {elsewhere: ("run-1",), REWARD: ("run-2",)}
    assert {one.name for one in found.values()} == {"mine", "embedded"}


@pytest.mark.parametrize(
    "settings",
    [
        {"reward": ["my.py:score"], "reward_model": ["/some/where"]},
        {"reward": "human", "reward_model": ["/some/where"]},
        {"reward_model": "\0"},
        {"reward_model": {"a": 1}},
        {"reward_model": [["/some/where"]]},
        {"model_name": "other"},
        {},
    ],
)
def test_settings_that_use_no_reward_model_or_are_odd_name_none(settings: dict[str, Any]) -> None:
    assert named_by(settings) == []


@pytest.mark.parametrize(
    "damage",
    ["", "[]", '{"config": 3, "validation": [1, {"loss": "x", "step": true}], "data": {}}', "{" * 10_000],
)
def test_damaged_files_are_gaps_on_the_page(tmp_path: Path, damage: str) -> None:
    folder = make_reward_model(tmp_path / "one")
    for name in ("training.json", "readiness.json", "reward.json", "adapter_config.json"):
        (folder / name).write_text(damage)
    page = in_full(RewardFolder("id", folder, ()))
    json.dumps(page, allow_nan=False)
    assert page["scale"] == {"mean": None, "std": None, "max_tokens": None, "max_prompt_tokens": None}
    assert page["training"]["training_rows"] is None
    assert page["problem"]


def test_how_it_was_trained_is_told(tmp_path: Path) -> None:
    history = [{"step": 0, "loss": 0.7, "accuracy": 0.5}, {"step": 20, "loss": 0.4, "training_loss": 0.5, "other": "x"}]
    config = {"model_name": "embedded", "data": ["rows.jsonl"]}
    folder = make_reward_model(tmp_path / "one", config=config, validation=history, training_rows=90, best_step=20)
    told = in_full(RewardFolder("id", folder, ("run",)))["training"]
    assert told["data"] == ["rows.jsonl"]
    assert (told["training_rows"], told["best_step"], told["model_name"]) == (90, 20, "embedded")
    assert told["validation"][1] == {"step": 20, "loss": 0.4, "training_loss": 0.5, "accuracy": None}
