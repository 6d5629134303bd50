"""Valid prompts, and errors that name the invalid one."""

from __future__ import annotations

from typing import Any

import pytest

from ppolm.data.prompts import Prompt, as_prompt, as_prompts, preview
from ppolm.errors import DataError

CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Who are you?"}]
ROWS: list[dict[str, Any]] = [
    {"prompt": "What is a cat?", "answer": "an animal", "level": 1},
    {"prompt": 'Say "héllo",\nplease ☕', "answer": "héllo", "level": 2},
]
ROWS_ALL_TEXT = [{**row, "level": str(row["level"])} for row in ROWS]  # CSV has only text


# ---- prompts given in Python ----------------------------------------------------------------------------------------


def test_prompts_may_be_text_messages_rows_or_prompts() -> None:
    made = Prompt("ready", {"x": 1})
    prompts = as_prompts(["text", CHAT, {"prompt": "row", "x": 2}, {"messages": CHAT}, {"prompt": CHAT}, made])
    assert [prompt.content for prompt in prompts] == ["text", CHAT, "row", CHAT, CHAT, "ready"]
    assert prompts[2].columns == {"x": 2}
    assert prompts[5] is made


def test_a_tuple_of_prompts_is_as_good_as_a_list() -> None:
    assert [prompt.content for prompt in as_prompts(("a", "b"))] == ["a", "b"]


@pytest.mark.parametrize("single", ["Tell me a story", {"prompt": "Tell me a story"}])
def test_single_prompt_instead_of_a_list_is_an_error_that_says_how_to_write_it(single: Any) -> None:
    with pytest.raises(DataError, match=r"single prompt, expected a list. Write \[prompt\]"):
        as_prompts(single)


def test_empty_list_of_prompts_is_an_error() -> None:
    with pytest.raises(DataError, match="list of prompts is empty"):
        as_prompts([])


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("", "Prompt 1 is empty"),
        ("\t\n", "Prompt 1 is empty"),
        (5, r"Prompt 1 is int \(5\), expected text"),
        (None, "Prompt 1 is NoneType"),
        (b"bytes", "Prompt 1 is bytes"),
        ([], "Prompt 1 must be a list of messages"),
        (["a", "b"], "Prompt 1 must be a list of messages"),
        ({"role": "user", "content": "x"}, "Prompt 1 has neither a 'prompt' nor a 'messages' column"),
    ],
)
def test_bad_prompt_is_an_error_that_names_its_number(item: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_prompts(["fine", item])


def test_messages_that_ask_the_prompt_are_the_prompt_and_others_contradict_it() -> None:
    question = CHAT[-1]["content"]
    assert as_prompt({"prompt": question, "messages": CHAT}, "row").content == CHAT
    with pytest.raises(DataError, match="row has a 'prompt' that nobody asks in its 'messages'"):
        as_prompt({"prompt": "text", "messages": CHAT}, "row")
    assert as_prompt({"prompt": None, "messages": CHAT}, "row").content == CHAT


def test_given_reference_is_not_overwritten_by_the_last_message() -> None:
    row = {"messages": [*CHAT, {"role": "assistant", "content": "A program."}], "reference": "Mine."}
    assert as_prompt(row, "row").reference == "Mine."


def test_messages_of_the_caller_are_not_changed() -> None:
    messages = [*CHAT, {"role": "assistant", "content": "A program."}]
    prompt = as_prompt({"messages": messages}, "row")
    assert len(messages) == 3
    assert isinstance(prompt.content, list)
    prompt.content[0]["content"] = "changed"
    assert messages[0]["content"] == "Be kind."


@pytest.mark.parametrize(
    ("columns", "reference"),
    [
        ({"reference": "a", "completion": "b"}, "a"),
        ({"completion": "b"}, "b"),
        ({"reference": " ", "completion": "b"}, "b"),
        ({"reference": 5}, None),
        ({}, None),
    ],
)
def test_reference_is_the_first_column_that_holds_an_answer(columns: dict[str, Any], reference: str | None) -> None:
    assert Prompt("p", columns).reference == reference


def test_preview_is_short_and_on_one_line() -> None:
    assert preview("two\nlines") == r"'two\nlines'"
    assert preview(CHAT) == "'Be kind. Who are you?'"
    assert len(preview("x" * 500)) == 82
    assert preview("x" * 500).endswith("...'")
