"""The data check: every number, on hand-made rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppolm.data.check import correlation_of, leakage_of, longer_wins
from ppolm.data.examples import KINDS
from ppolm.data.tally import COLUMNS, digest, tally_rows
from tests.data.check_rows import pair, rated, report

# ---- numbers of hand-made files -------------------------------------------------------------------------------------


def test_kinds_columns_and_forms_are_counted() -> None:
    chat = [{"role": "user", "content": "Hi"}]
    found = report(
        pair("p", "a", "b", id=1), rated("p", "a", label=1), rated("p", "a", score=1), rated("p", "a"), {"prompt": chat}
    )
    assert found["rows"] == 5
    assert found["kinds"] == {"preferences": 1, "thumbs": 1, "scores": 1, "demonstrations": 1, "prompts": 1}
    assert (found["chat"], found["text"]) == (1, 4)
    assert found["other_columns"] == {"id": 1}
    assert COLUMNS.keys() == KINDS.keys()


def test_lengths_are_in_words_with_median_high_end_and_maximum() -> None:
    rows = [rated("one two three", "w " * number) for number in range(1, 101)]
    found = report(*rows, {"messages": [{"role": "user", "content": "a b"}, {"role": "user", "content": "c d"}]})
    assert found["words"]["completion"] == {"median": 51, "p95": 96, "max": 100}
    assert found["words"]["prompt"] == {"median": 3, "p95": 3, "max": 4}


def test_duplicates_conflicts_and_repeated_prompts() -> None:
    found = report(
        pair("p", "a", "b"),
        pair("p", "a", " b "),  # the same, apart from white space
        pair("p", "b", "a"),  # the opposite
        pair("p", "a", "b", tie=True),  # no contradiction
        pair("q", "b", "a"),  # another prompt
        pair("q", "b", "a", annotator="ann"),  # somebody else agrees
        rated("r", "a", label=True),
        rated("r", "a", label=False),
        rated("r", "b", label=False),
    )["duplicates"]
    assert found == {
        "identical_rows": 1,
        "conflicts": 2,
        "different_prompts": 3,
        "repeated_prompts": 3,
        "most_rows_of_a_prompt": 4,
    }


def test_how_often_the_longer_answer_wins_is_averaged_within_each_prompt_first() -> None:
    found = report(
        pair("p", "a b c", "a"),
        pair("p", "a b", "c"),
        pair("p", "a c", "d"),
        pair("q", "a", "a b"),
        pair("q", "c d", "a b"),  # equal length
        pair("q", "a", "b c d", tie=True),
    )["preferences"]
    assert found["ties"] == 1
    wins = found["longer_wins"]
    assert wins["mean"] == 0.5  # 3 of 3 and 0 of 1
    assert (wins["low"], wins["high"]) == (0.0, 1.0)
    assert (wins["prompts"], wins["pairs"], wins["equal_length"]) == (2, 4, 1)
    assert wins["baseline_accuracy"] == 0.7  # 3 of 5, and half a point for the equal ones
    assert report(pair("p", "a", "b"))["preferences"]["longer_wins"] is None
    assert longer_wins([]) is None


def test_scores_thumbs_and_annotators() -> None:
    found = report(
        rated("p", "a", score=1, annotator="ann"),
        rated("p", "a b", score=2, annotator="ann"),
        rated("p", "a b c", score=6, annotator="bob"),
        rated("p", "a", label="up"),
        rated("p", "a b", label="down"),
        rated("p", "a b c d", label="down"),
    )
    expected = np.corrcoef([1, 2, 6], [1, 2, 3])[0, 1]
    assert found["scores"] == {
        "min": 1,
        "max": 6,
        "mean": 3,
        "deviation": pytest.approx(np.std([1, 2, 6])),
        "different": 3,
        "length_correlation": pytest.approx(expected),
    }
    assert found["thumbs"]["up"] == pytest.approx(1 / 3)
    assert found["thumbs"]["length_correlation"] == pytest.approx(np.corrcoef([1, 0, 0], [1, 2, 4])[0, 1])
    assert found["annotators"] == {"different": 2, "most": {"ann": 2, "bob": 1}}
    assert correlation_of([1, 1], [2, 3]) is None


def test_leakage_between_sources() -> None:
    sources = [[pair("p", "a", "b"), rated("q", "c")], [rated("q  ", "x"), {"prompt": "r"}, {"prompt": "s"}]]
    tallies = [tally_rows([("row,", row) for row in rows], name) for name, rows in zip("AB", sources, strict=True)]
    assert leakage_of(tallies) == [
        {
            "sources": ["A", "B"],
            "prompts": {"count": 1, "share": 0.5, "example": "'q'"},
            "answers": {"count": 0, "share": 0.0, "example": None},
        }
    ]
    assert leakage_of(tallies[:1]) == []


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        ([pair("p", " a", "b"), pair("p", "c", "d")], "1 of 4 answers begin with a space, the others do not"),
        ([{"prompt": "p "}, {"prompt": "q"}], "1 of 2 prompts end in white space"),
        ([{"messages": [{"role": "user", "content": " "}]}], "1 conversations end in an empty message"),
        ([pair("p", "a", "no"), pair("q", "b", "no")], "'rejected' is the same text in every row"),
        ([pair("p", "a", "b", tie=1), pair("q", "c", "d", tie=1)], "Every preference is a tie"),
        ([rated("p", "a", label=0), rated("q", "b", label=0)], "Every thumb points down"),
        ([rated("p", "a", label=1), rated("q", "b", label=1)], "Every thumb points up"),
        ([rated("p", "a", score=2), rated("q", "b", score=2)], "Every score is 2"),
        ([rated("p", "a"), rated("q", "b"), {"prompt": "p"}], "The first of the prompts is here, line 3."),
        ([{"prompt": "p"}, {"prompt": [{"role": "user", "content": "x"}]}], "1 of 2 prompts are chat messages"),
    ],
)
def test_traps_are_named(rows: list[Any], warning: str) -> None:
    assert [text for text in report(*rows)["warnings"] if warning in text]


def test_sound_data_brings_no_warning() -> None:
    assert report(pair("p", " a", " b"), pair("q", " c", " d", tie=True))["warnings"] == []
    assert report(rated("p", "a", score=1), rated("q", "b", score=2))["warnings"] == []
    assert report({"prompt": "p"})["warnings"] == []


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_different_lists_of_texts_have_different_digests(one: list[str], other: list[str]) -> None:
    keys = [digest([digest(text) for text in texts]) for texts in (one, other)]
    same = [text.split() for text in one] == [text.split() for text in other]
    assert (keys[0] == keys[1]) == same
