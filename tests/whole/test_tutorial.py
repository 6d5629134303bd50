"""docs/tutorial.md, and what it takes from examples/stories."""

from __future__ import annotations

import json
import subprocess
import sys

from ppolm.rewards.function_reward import load_function
from tests.conftest import ROOT
from tests.doc_blocks import blocks

STORIES = ROOT / "examples" / "stories"
FULL = " ran after a big dog. The dog was happy."


def test_the_page_shows_the_reward_that_it_runs() -> None:
    shown = next(block.text for block in blocks("docs/tutorial.md") if block.language == "python")
    assert shown[shown.index("def ") :] in (STORIES / "reward.py").read_text(encoding="utf-8")


def test_every_prompt_is_about_its_word() -> None:
    rows = [json.loads(line) for line in (STORIES / "prompts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 72
    assert all(row["word"] in row["prompt"] for row in rows)


def test_the_reward_pays_for_what_the_page_says() -> None:
    story = load_function(f"{STORIES / 'reward.py'}:story")
    again = " dog ran home dog ran home dog ran home."
    told = [FULL, FULL.removesuffix("."), again, " ran home.", ""]
    full, cut, repeated, elsewhere, empty = story([""] * len(told), told, word=["dog"] * len(told))
    assert (full, cut, elsewhere, empty) == (2.0, 1.5, 0.5, 0.0)
    assert repeated < full


def test_the_judge_likes_cheerful_stories() -> None:
    judge = load_function(f"{STORIES / 'cheerful.py'}:cheerful")
    assert judge([""] * 3, [FULL, " The dog was sad. ", " A happy friend, but scared."]) == [1.0, -1.0, 1.0]


def test_stories_are_cut_after_their_last_whole_sentence() -> None:
    told = [f"{FULL} Then it", " He had 3.5 cakes", ' "Hi!" said Ben. Then']
    lines = "".join(json.dumps({"prompt": "p", "response": text, "ended": False}) + "\n" for text in told)
    program = [sys.executable, str(STORIES / "whole_sentences.py")]
    made = subprocess.run(program, input=lines, capture_output=True, text=True, check=True).stdout
    assert [json.loads(line) for line in made.splitlines()] == [{"prompt": "p", "completion": FULL}]
