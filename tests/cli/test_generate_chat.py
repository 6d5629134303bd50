"""``ppolm generate`` formats prompts as training did: through the chat template if the run's prompts were chats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]
CHATS = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
HELLO = [{"role": "user", "content": "Hello"}]


def sampled_prompt(capsys: pytest.CaptureFixture[str], *flags: str) -> Any:
    """The prompt that was actually used."""
    capsys.readouterr()
    assert ppolm(["generate", *flags, "--prompt", "Hello", "--max-new-tokens", "2", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["prompt"]


@pytest.mark.parametrize("evaluated", [True, False])
def test_a_policy_that_learned_on_chats_is_asked_in_a_chat(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str], evaluated: bool
) -> None:
    config = make_config(max_steps=1, eval_every=int(evaluated), eval_fraction=0.4 if evaluated else 0.1)
    run = str(PPOTrainer(config, reward=spread).train(CHATS).run_dir)
    assert sampled_prompt(capsys, "--run", run) == HELLO
    assert sampled_prompt(capsys, "--run", run, "--chat", "no") == "Hello"
    best = ["--model-name", config.model_name, "--adapter", f"{run}/best"]
    assert sampled_prompt(capsys, *best) == HELLO


@pytest.mark.parametrize("prompts", [PROMPTS, [*PROMPTS[:3], *CHATS[3:]]], ids=["text", "mixed"])
def test_a_policy_that_learned_on_text_continues_it(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str], prompts: list[Any]
) -> None:
    run = str(PPOTrainer(make_config(max_steps=1, eval_every=0), reward=spread).train(prompts).run_dir)
    assert sampled_prompt(capsys, "--run", run) == "Hello"
    assert sampled_prompt(capsys, "--run", run, "--chat", "yes") == HELLO


def test_a_bare_model_continues_text_unless_it_is_told_to_chat(
    model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sampled_prompt(capsys, "--model-name", str(model_folder)) == "Hello"
    assert sampled_prompt(capsys, "--model-name", str(model_folder), "--chat", "yes") == HELLO


def test_a_model_without_a_template_chats_by_transcript_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert ppolm(["generate", "--model-name", "embedded", "--chat", "yes", "--prompt", "Hello"]) == 0
    assert "no chat template" in caplog.text
