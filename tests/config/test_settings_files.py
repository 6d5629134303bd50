"""Settings files and flags with arbitrary content give one short error message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.config.yaml_io import read_yaml
from ppolm.errors import ConfigError
from ppolm.messages import brief, printable

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BOMB, "an alias"),
        ("gamma: 0.9\nlam: 0.9\ngamma: 0.8\n", "'gamma' is set twice .line 3"),
        ("reward: " + "[" * 5000, "nested more than"),
        ("seed: " + "9" * 5000, "not valid YAML"),
        ("run_name: 2024-13-45\n", "not valid YAML"),
        ("x" * 300_000, "larger than 256 KiB"),
        ("gamma: [", "not valid YAML"),
        ("\x00", "not valid YAML"),
        ("? [a, b]\n: c", "not valid YAML"),
    ],
)
def test_a_settings_file_that_is_none_is_refused_in_a_sentence(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=expected) as error:
        PPOConfig.from_yaml(tmp_path / "config.yaml")
    assert len(str(error.value)) < 500


def test_a_yaml_error_does_not_repeat_the_lines_around_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("reward: https://host/score?api_key=hunter2 : : [")
    with pytest.raises(ConfigError) as error:
        read_yaml(tmp_path / "config.yaml")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "setting",
    [
        {"gamma": 10**400},
        {"gamma": "x" * 10_000},
        {"batch_size": 10**30},
        {"batch_size": 10**5000},
        {"seed": -(10**5000)},
        {"kl_estimator": [["k1"]]},
        {"kl_estimator": {"a": []}},
        {"reward": {"a": 1}},
        {"reward": [["x" * 10_000]]},
        {"model_name": "a\0b"},
        {"model_name": "\udcff"},
        {"run_name": ".."},
        {"run_name": "."},
        {"run_name": " .. "},
        {"run_name": "a\x1b[31m"},
        {"trunk_mib": -1},
        {"x" * 10_000: 1},
        {(1, 2): 1},
    ],
    ids=range(18),
)
def test_odd_values_are_refused_without_repeating_them_at_length(setting: dict[Any, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        PPOConfig.from_dict(setting)
    assert len(str(error.value)) < 400
    assert str(error.value).isprintable()


def test_a_value_is_shown_short_and_without_codes() -> None:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    for value in (nested, [nested] * 10_000, "\x1b" * 1000, 10**6000, {"a": nested}, object()):
        assert len(brief(value)) <= 60
        assert brief(value).isprintable()
    assert brief("short") == "'short'"
    assert printable("a\x1b[2Jb\n\u202e") == "a\\x1b[2Jb\n\\u202e"


@pytest.mark.parametrize(
    "argv",
    [
        ["train", "--prompts", "a" * 400 + ".jsonl"],
        ["train", "--config", "a" * 400],
        ["train", "--resume", "a" * 400],
        ["data", "check", "x" * 5000],
        ["train", "--\x1b[31mred", "\x1b"],
        ["train", "--bogus" * 1000],
        ["train", "--lora-r", "9" * 5000],
        ["eval", "\udcff\x1b"],
        ["\x1b[31m" * 1000],
        ["data", "\x1b" * 1000],
        ["feedback", "\x1b" * 1000],
    ],
    ids=range(11),
)
def test_odd_arguments_end_in_a_short_plain_message(argv: list[str], capsys: Any) -> None:
    try:
        status = ppolm(argv)
    except SystemExit as end:
        status = int(end.code or 0)
    assert status in (1, 2)
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert len(shown) < 5000
