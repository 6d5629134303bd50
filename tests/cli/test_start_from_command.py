"""ppolm train --start-from RUN: the settings of RUN unless a file or flags say otherwise; its code only if agreed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.cli.settings import parse_train
from ppolm.storage.code_consent import SEAL_FILE
from ppolm.storage.stored_run import read_run_config
from tests.cli.failing import fails, train


@pytest.fixture
def run(files: Path) -> Path:
    """A finished run."""
    assert ppolm(list(train(files))) == 0
    return files / "runs" / "run"


def again(run: Path, *flags: str) -> tuple[str, ...]:
    return ("train", "--start-from", str(run), *flags)


def test_settings_are_those_of_the_run_unless_flags_say_otherwise(run: Path, capsys: Any) -> None:
    assert ppolm(list(again(run, "--run-name", "next", "--kl-coef", "0.2", "--max-steps", "1"))) == 0
    before, after = read_run_config(run).to_dict(), read_run_config(run.parent / "next").to_dict()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"run_name", "kl_coef", "max_steps", "start_from"}
    assert ppolm(["train", "--resume", str(run.parent / "next"), "--max-steps", "2"]) == 0
    assert "resuming after step 1 of 2" in capsys.readouterr().err


def test_a_settings_file_or_a_preset_takes_the_place_of_the_runs_settings(run: Path, files: Path) -> None:
    config = files / "config.yaml"
    by_file = parse_train(["--config", str(config), "--start-from", str(run), "--run-name", "next"]).settings
    assert by_file.start_from == str(run)
    by_preset = parse_train(["--preset", "lora-small", "--start-from", str(run)]).settings
    assert by_preset.ppo_epochs == 2, "of the preset"
    assert by_preset.prompts == str(files / "prompts.txt"), "of the run"


def test_the_next_round_of_a_round_starts_as_it_is_told(run: Path) -> None:
    assert ppolm(list(again(run, "--run-name", "next", "--start-reference", "policy", "--no-start-value"))) == 0
    third = parse_train(["--start-from", str(run.parent / "next")]).settings
    assert (third.start_reference, third.start_value) == ("kept", True), "not as the round before was"


def test_code_that_a_strangers_run_names_is_not_run_unasked(run: Path, files: Path, capsys: Any) -> None:
    (run / SEAL_FILE).unlink()
    said = fails(capsys, *again(run, "--run-name", "next"))
    assert "was not started here by you" in said
    assert "ppolm train --start-from" in said
    assert not (run.parent / "next").exists()
    reward = f"{files}/reward.py:score"
    assert ppolm(list(again(run, "--run-name", "next", "--reward", reward))) == 0


def test_an_estimate_counts_what_the_run_would_load(run: Path, capsys: Any) -> None:
    assert ppolm(list(again(run, "--start-reference", "policy", "--estimate"))) == 0
    said = capsys.readouterr().out
    assert "4 of" not in said
    assert "3 of" in said, "policy, value model, and the reference that is an adapter now"


def test_what_is_refused_leaves_nothing_behind(run: Path, files: Path, capsys: Any) -> None:
    said = fails(capsys, *again(run, "--run-name", "next", "--lora-r", "7"))
    assert "Leave lora_r out" in said
    assert "set model_name to" in fails(capsys, *again(run, "--run-name", "next", "--model-name", "embedded"))
    assert "already holds a run" in fails(capsys, *again(run, "--run-name", "run"))
    assert "start_reference is for a run that starts from another" in fails(
        capsys, *train(files, "--start-reference", "policy", "--run-name", "next")
    )
    assert not (run.parent / "next").exists()
    assert json.loads((run / "status.json").read_text())["state"] == "finished"
