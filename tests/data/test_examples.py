"""Every kind of example, as text and as chat."""

from __future__ import annotations

from typing import Any

import pytest

from ppolm.data.examples import Demonstration, Preference, Rating, Thumb, as_example, as_judgement
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError
from tests.data.example_rows import CHAT, TEXT, example, said

PROMPTS = pytest.mark.parametrize("prompt", [TEXT, CHAT], ids=["text", "chat"])


def in_form(prompt: Any, text: str) -> Any:
    """An answer in the same form (text or chat) as its prompt."""
    return text if isinstance(prompt, str) else said(text)


# ---- the five formats -----------------------------------------------------------------------------------------------


@PROMPTS
def test_each_format_is_read_as_text_and_as_chat(prompt: Any) -> None:
    blue, red = in_form(prompt, " Blue."), in_form(prompt, " Red.")
    known = Prompt(prompt)
    assert example({"prompt": prompt}) == known
    assert example({"prompt": prompt, "completion": blue}) == Demonstration(known, " Blue.")
    assert example({"prompt": prompt, "chosen": blue, "rejected": red}) == Preference(known, " Blue.", " Red.")
    assert example({"prompt": prompt, "completion": blue, "score": -7}) == Rating(known, " Blue.", -7.0)
    assert example({"prompt": prompt, "completion": blue, "label": True}) == Thumb(known, " Blue.", True)


def test_a_conversation_that_ends_in_an_answer_is_a_prompt_with_its_answer() -> None:
    row = {"messages": [*CHAT, *said("Blue.")], "reference": "Another text."}
    assert example(row) == Demonstration(Prompt(CHAT), "Blue.")  # and not the reference
    assert example(row | {"score": 3}) == Rating(Prompt(CHAT), "Blue.", 3.0)
    assert example(row | {"label": "down"}) == Thumb(Prompt(CHAT), "Blue.", False)
    assert example({"messages": CHAT}) == Prompt(CHAT)


@pytest.mark.parametrize("column", [{}, {"prompt": TEXT}, {"prompt": CHAT}, {"prompt": None}, {"messages": CHAT}])
def test_conversations_in_chosen_and_rejected_bring_their_prompt(column: dict[str, Any]) -> None:
    row = column | {"chosen": [*CHAT, *said("Blue.")], "rejected": [*CHAT, *said("Red.")]}
    assert example(row) == Preference(Prompt(CHAT), "Blue.", "Red.")


def test_what_conversations_hold_beside_role_and_content_does_not_make_them_differ() -> None:
    stamped = [message | {"id": 4} for message in CHAT]
    found = example({"chosen": [*CHAT, *said("Blue.")], "rejected": [*stamped, *said("Red.")]})
    assert found == Preference(Prompt(CHAT), "Blue.", "Red.")


def test_tie_confidence_margin_and_annotator_are_read() -> None:
    pair = {"prompt": TEXT, "chosen": "a", "rejected": "b"}
    known = Preference(Prompt(TEXT), "a", "b", tie=True, confidence=0.5, margin=2.0, annotator="7")
    assert example(pair | {"tie": "yes", "confidence": "0.5", "margin": 2, "annotator": 7}) == known
    empty = dict.fromkeys(("tie", "confidence", "margin", "annotator"), "")
    assert example(pair | empty) == example(pair | dict.fromkeys(empty)) == Preference(Prompt(TEXT), "a", "b")
    assert example(pair | {"rejected": "a", "tie": True}) == Preference(Prompt(TEXT), "a", "a", tie=True)
    thumb = {"prompt": TEXT, "completion": "a", "label": 1, "confidence": 0, "annotator": "ann"}
    assert example(thumb) == Thumb(Prompt(TEXT), "a", True, 0.0, "ann")
    assert example(thumb | {"label": None, "score": "2"}) == Rating(Prompt(TEXT), "a", 2.0, 0.0, "ann")


@pytest.mark.parametrize(
    ("up", "down"),
    [(True, False), (1, 0), (1.0, -1), ("True", "FALSE"), ("up", "down"), (" yes", "no "), ("good", "bad")],
)
def test_thumbs_are_read_as_people_write_them(up: Any, down: Any) -> None:
    row = {"prompt": TEXT, "completion": "a"}
    assert example(row | {"label": up}) == Thumb(Prompt(TEXT), "a", True)
    assert example(row | {"label": down}) == Thumb(Prompt(TEXT), "a", False)


def test_a_score_of_a_prompt_alone_judges_no_answer() -> None:
    assert example({"prompt": TEXT, "score": 12}) == Prompt(TEXT)
    with pytest.raises(DataError, match=r"row 1, holds no judgement: .* It has: prompt, response, score"):
        as_judgement({"prompt": TEXT, "response": "a", "score": 12}, "row 1,")


def test_the_richest_kind_counts() -> None:
    row = {"prompt": TEXT, "chosen": "a", "rejected": "b", "completion": "c", "score": 1, "label": True}
    assert isinstance(as_example(row, ""), Preference)
    assert isinstance(as_example(row | {"chosen": None, "rejected": ""}, ""), Rating)
