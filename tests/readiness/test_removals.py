"""An answer in sentences: no letter is lost, and what is left without one of them reads as a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppolm.readiness.removals import sentences, without


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("One.", ["One."]),
        ("One. Two!  Three", ["One.", " Two!", "  Three"]),
        ("It costs 3.14 euros. Really?", ["It costs 3.14 euros.", " Really?"]),
        ('He said "no." Then he left...  ', ['He said "no."', " Then he left...  "]),
        ("a list\n- one\n\n- two\n", ["a list", "\n- one", "\n\n- two\n"]),
        ("これはペンです。本当？はい", ["これはペンです。", "本当？", "はい"]),
        ("  indented. Yes", ["  indented.", " Yes"]),
        (" \n ", [" \n "]),
    ],
)
def test_a_text_is_cut_where_sentences_and_lines_end(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text(alphabet=st.sampled_from("ab .!?\n。\"'")))
def test_sentences_together_are_the_text(text: str) -> None:
    found = sentences(text)
    assert "".join(found) == text
    assert all(piece.strip() for piece in found) or len(found) == 1


def test_without_its_first_sentence_a_text_begins_with_a_letter_again() -> None:
    assert [without(["One.", " Two.", " Three."], at) for at in range(3)] == ["Two. Three.", "One. Three.", "One. Two."]
    assert without([" One.", " Two."], 0) == " Two.", "a response of a model begins with a space"
    assert without(["One."], 0) == ""
