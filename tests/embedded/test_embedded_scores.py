"""The embedded model's scores match its model card."""

from __future__ import annotations

import re

import pytest

from ppolm.embedded import FOLDER, MODEL
from scripts.model_card import measure


@pytest.fixture(scope="module")
def scores() -> dict[str, dict[str, float]]:
    return measure(MODEL, FOLDER / "reward")


def test_the_card_says_what_the_weights_score(scores: dict[str, dict[str, float]]) -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, value in scores["sampled"].items():
        (row,) = re.findall(rf"^\| {re.escape(name)} \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)
        # Rounding may differ on another machine and change a few samples.
        assert float(row[0]) == pytest.approx(value, abs=0.03)
        assert float(row[1]) == pytest.approx(scores["greedy"][name], abs=0.03)
    for name, value in scores["accuracy"].items():
        (row,) = re.findall(rf"^\| {re.escape(name)} \| ([\d.]+) \|$", text, re.MULTILINE)
        assert float(row) == pytest.approx(value, abs=0.03)


def test_the_reward_model_is_not_blind_to_wrong_facts_and_the_room_is_as_documented(
    scores: dict[str, dict[str, float]],
) -> None:
    assert scores["accuracy"]["wrong fact"] > 0.65
    assert min(value for name, value in scores["accuracy"].items() if name != "wrong fact") > 0.8
    assert 0.3 < scores["sampled"]["gold"] < 0.6
    assert scores["greedy"]["gold"] < scores["sampled"]["gold"] + 0.1, "greedy decoding would leave nothing to show"
