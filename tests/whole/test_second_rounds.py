"""docs/second-rounds.md: three rounds of judging, reward model and PPO, in which the judge's score rises each time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ppolm.data.load_rows import load_prompts
from scripts import second_rounds
from scripts.second_rounds import commands, measured_rounds
from tests.conftest import THREADS
from tests.doc_blocks import blocks

POSTS = 128
"""Of 256, to save time."""


def test_gold_rises_in_each_of_three_rounds_on_posts_that_no_round_has_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the SFT model and 200 judgements on; the policy is trained on reward models only, never on gold."""
    torch.set_num_threads(THREADS)
    monkeypatch.chdir(tmp_path)
    before, *rounds = measured_rounds(0, load_prompts("embedded:test")[:POSTS])
    capsys.readouterr()
    for one in rounds:
        print(f"round {one.number}: gold {one.gold}, rise {one.rise}, {one.judgements} judgements")
    assert [one.number for one in rounds] == [1, 2, 3]
    assert before.gold.mean < 0.5
    for one in rounds:
        assert one.rise is not None
        assert one.rise.mean > 0.02, "the smallest of three seeds on all posts is 0.06"
    assert rounds[-1].gold.mean > before.gold.mean + 0.25
    assert rounds[0].judgements < rounds[1].judgements < rounds[2].judgements <= 600


def test_the_page_shows_the_commands_that_are_measured() -> None:
    shown = "".join(block.text for block in blocks("docs/second-rounds.md"))
    for command in (*commands(1), *commands(2)):
        assert f"{command}\n" in shown


def test_the_tables_of_the_page_have_every_seed_round_and_variant() -> None:
    page = second_rounds.PAGE.read_text(encoding="utf-8")
    for seed in second_rounds.SEEDS:
        for number in second_rounds.ROUNDS:
            assert f"\n| {seed} | {number} | " in page
    for variant in second_rounds.VARIANTS:
        assert f"\n| {variant} | " in page
