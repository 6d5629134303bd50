"""``ppolm init``: a file that trains as it stands, with a comment on every line, and nothing is overwritten."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.config.presets import PRESETS
from tests.cli.failing import fails

FLAGS = ("--model-name", "some/model", "--prompts", "p.jsonl", "--reward", "r.py:score")


class Terminal(io.StringIO):
    """Answers of a person."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("preset", PRESETS)
def test_the_file_has_the_values_of_the_preset_and_a_comment_for_each(preset: str) -> None:
    assert ppolm(["init", "run.yaml", "--preset", preset, *FLAGS, "--yes"]) == 0
    text = Path("run.yaml").read_text()
    config = PPOConfig.from_yaml("run.yaml")
    expected = PPOConfig.from_preset(preset, model_name="some/model", reward=("r.py:score",), max_steps=100)
    assert config == PPOConfig.from_dict(expected.to_dict() | {"prompts": config.prompts})
    assert config.prompts is not None
    assert config.prompts.endswith("p.jsonl")
    lines = text.splitlines()
    for name, reason in PRESETS[preset].reasons.items():
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{name}:"))
        assert lines[at - 1].startswith("# ")
        assert reason[-20:] in lines[at - 1]
    assert max(map(len, lines)) <= 100


def test_what_is_not_given_is_asked_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("my/model\n\nmine.csv\nhuman\n33\n"))
    assert ppolm(["init"]) == 0
    asked = capsys.readouterr().out
    assert asked.index("Which model?") < asked.index("Which preset?") < asked.index("Which prompts?")
    assert "[lora-small]: " in asked
    config = PPOConfig.from_yaml("my-run.yaml")
    assert (config.model_name, config.reward, config.max_new_tokens) == ("my/model", ("human",), 33)


def test_without_a_terminal_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert ppolm(["init"]) == 0
    assert PPOConfig.from_yaml("my-run.yaml").model_name == PPOConfig.model_name


def test_a_folder_as_reward_is_a_reward_model(here: Path) -> None:
    (here / "rm").mkdir()
    assert ppolm(["init", "--reward", "rm", "--yes"]) == 0
    config = PPOConfig.from_yaml("my-run.yaml")
    assert config.reward == ("model",)
    assert config.reward_model == (str(here / "rm"),)


@pytest.mark.slow
def test_the_file_for_the_embedded_model_trains_as_it_stands() -> None:
    assert ppolm(["init", "--model-name", "embedded", "--yes"]) == 0
    small = ["--max-steps", "1", "--batch-size", "4", "--minibatch-size", "4", "--max-eval-prompts", "2"]
    assert ppolm(["train", "--config", "my-run.yaml", "--run-name", "x", "--threads", "1", *small]) == 0


def test_a_file_that_is_there_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.yaml").write_text("mine")
    assert "nothing is overwritten" in fails(capsys, "init", "run.yaml", "--yes")
    assert Path("run.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere/run.yaml",), "There is no folder 'nowhere'"),
        (("--preset", "demos"), "There is no preset 'demos'"),
        (("--max-new-tokens", "0"), "max_new_tokens is 0, expected at least 1"),
        (("--model-name", " "), "model_name is empty"),
    ],
)
def test_what_would_not_train_is_refused_and_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said in fails(capsys, "init", *words, "--yes")
    assert list(here.iterdir()) == []


def test_an_answer_that_is_no_number_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("my/model\n\nmine.csv\nhuman\nmany\n"))
    assert "'many' is no whole number" in fails(capsys, "init")
