"""Every valid input gives a complete report, and every problem with the input is shown or named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppolm.data.examples import Judgement, Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError, RewardError
from ppolm.readiness import assess, write_readiness
from tests.readiness.scorers import Score, constant, counting, pairs, skilled

# Every input, every file


def mixed(count: int) -> list[Judgement]:
    chat = Prompt([{"role": "user", "content": "Hi"}])
    kinds: list[Judgement] = [
        Preference(Prompt("a"), "one | two q1.0000.", "three q2.0000."),
        Preference(chat, "four q3.0000.", "five\n\nsix q1.0000.", tie=True, annotator="a|b"),
        Rating(chat, "seven q2.0000.", 3.0),
        Thumb(Prompt("b"), "eight q0.0000.", True),
        Preference(chat, "four q3.0000.", "five `six` q4.0000.", annotator="a|b"),
    ]
    return [kinds[i % len(kinds)] for i in range(count)]


@pytest.mark.parametrize("score", [skilled, constant, counting])
@pytest.mark.parametrize(
    "rows",
    [mixed(1), mixed(2), mixed(10), mixed(5)[1:2], mixed(5)[2:3], mixed(5)[3:4], pairs(1), pairs(2)],
    ids=["1", "2", "10", "tie", "score", "thumb", "pair", "pairs"],
)
def test_the_smallest_data_gives_a_whole_report(rows: list[Judgement], score: Score, tmp_path: Path) -> None:
    readiness = assess(rows, score)
    assert readiness.verdict == "not ready"
    write_readiness(tmp_path / "model", readiness)
    found = json.loads((tmp_path / "model" / "readiness.json").read_text())
    assert found == json.loads(json.dumps(readiness.to_dict(), allow_nan=False))
    assert "**Verdict: not ready**" in (tmp_path / "model" / "readiness.md").read_text(encoding="utf-8")
    assert (tmp_path / "model" / "readiness.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_shows_the_worst_mistakes_first(tmp_path: Path) -> None:
    readiness = assess(pairs(300), skilled, mistakes=3)
    gaps = [mistake.rejected_score - mistake.chosen_score for mistake in readiness.mistakes]
    assert len(gaps) == 3
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0
    write_readiness(tmp_path, readiness)
    page = (tmp_path / "readiness.md").read_text(encoding="utf-8")
    assert readiness.mistakes[0].chosen in page
    assert readiness.mistakes[0].prompt in page
    assert page.index("**1.**") < page.index("**2.**")


def test_the_same_rows_give_the_same_report() -> None:
    rows = [*pairs(40), *mixed(10)]
    assert assess(rows, skilled) == assess(rows, skilled)


def test_nothing_held_out_is_an_error() -> None:
    with pytest.raises(DataError, match="no held-out rows"):
        assess([], skilled)


def test_a_score_that_is_no_number_names_its_answer() -> None:
    with pytest.raises(RewardError, match=r"gave nan for the response .* to the prompt 'Question 0\?'"):
        assess(pairs(3), lambda _, responses: [float("nan")] * len(responses))
    with pytest.raises(RewardError, match="expected one per response"):
        assess(pairs(3), lambda *_: [1.0])
