"""Every format, text and chat; every kind of bad row, with its file, line and reason."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppolm.data.examples import Demonstration, Example, Preference, Rating, Thumb, as_example, as_judgement
from ppolm.data.load_rows import load_demonstrations, load_judgements, load_prompts, try_rows
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError

TEXT = "Name a colour."
CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": TEXT}]
PROMPTS = pytest.mark.parametrize("prompt", [TEXT, CHAT], ids=["text", "chat"])


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def in_form(prompt: Any, text: str) -> Any:
    """An answer in the form of its prompt."""
    return text if isinstance(prompt, str) else said(text)


def bare(example: Example) -> Example:
    """Without the columns that a reward function would get, which depend on the file format."""
    if isinstance(example, Prompt):
        return Prompt(example.content)
    return dataclasses.replace(example, prompt=Prompt(example.prompt.content))


def example(row: Any) -> Example:
    return bare(as_example(row, "row 1,"))


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


# ---- bad rows -------------------------------------------------------------------------------------------------------

PAIR = {"prompt": "p", "chosen": "a", "rejected": "b"}
RATED = {"prompt": "p", "completion": "a", "score": 1}
BAD: list[tuple[Any, str]] = [
    ({"prompt": "p", "chosen": "a"}, "has no column 'rejected'. It has: prompt, chosen."),
    ({"prompt": "p", "rejected": "a"}, "has no column 'chosen'. It has: prompt, rejected."),
    (
        {"chosen": "a", "rejected": "b"},
        "has neither a 'prompt' nor a 'messages' column. Its columns: chosen, rejected.",
    ),
    (PAIR | {"rejected": "a"}, "prefers a text to itself"),
    (PAIR | {"chosen": " "}, "has ' ' as its 'chosen', expected text, or a list with one message of the assistant"),
    (PAIR | {"chosen": 5}, "has 5 as its 'chosen', expected text"),
    (PAIR | {"rejected": None}, "has None as its 'rejected', expected text"),
    (PAIR | {"chosen": []}, "has [] as its 'chosen'"),
    (PAIR | {"chosen": CHAT[1:]}, "has a message of 'user' as its 'chosen', expected one of 'assistant'"),
    (PAIR | {"chosen": [{"role": "assistant", "content": None}]}, "has None as its 'chosen'"),
    (PAIR | {"prompt": ""}, "is empty"),
    (PAIR | {"tie": "perhaps"}, "has 'perhaps' as its 'tie', expected true or false"),
    (PAIR | {"confidence": -1}, "has -1 as its 'confidence', expected 0 or more"),
    (PAIR | {"confidence": "high"}, "has 'high' as its 'confidence', expected a number"),
    (PAIR | {"margin": -0.5}, "has -0.5 as its 'margin', expected 0 or more"),
    (
        {"chosen": [*CHAT, *said("a")], "rejected": [CHAT[1], *said("b")]},
        "has conversations in 'chosen' and 'rejected' that differ before their last message",
    ),
    (
        {"prompt": "Another?", "chosen": [*CHAT, *said("a")], "rejected": [*CHAT, *said("b")]},
        "has another 'prompt' than the conversations",
    ),
    ({"chosen": CHAT, "rejected": [CHAT[0], *said("b")]}, "has a message of 'user' as its 'chosen'"),
    (RATED | {"score": "five"}, "has 'five' as its 'score', expected a number"),
    (RATED | {"score": float("nan")}, "has nan as its 'score', expected a number"),
    (RATED | {"score": float("inf")}, "has inf as its 'score', expected a number"),
    (RATED | {"score": 10**400}, "as its 'score', expected a number"),
    (RATED | {"score": True}, "has True as its 'score', expected a number"),
    (RATED | {"score": [1]}, "has [1] as its 'score', expected a number"),
    (RATED | {"completion": ""}, "has '' as its 'completion', expected text"),
    ({"prompt": "p", "completion": "a", "label": "maybe"}, "has 'maybe' as its 'label', expected true or false"),
    ({"prompt": "p", "completion": "a", "label": 2}, "has 2 as its 'label', expected true or false"),
    ({"prompt": "p", "completion": "a"}, "holds no judgement: expected chosen and rejected, or completion with score"),
    ({"prompt": "p"}, "holds no judgement"),
    ("p", "holds no judgement: expected chosen and rejected, or completion with score or label. It has: str."),
    ({"messages": "Hello", "chosen": "a", "rejected": "b"}, "has text as its 'messages' ('Hello'), expected a list"),
    (PAIR | {"prompt": [{"role": None, "content": "x"}]}, "must be a list of messages, each with 'role' and 'content'"),
]


@pytest.mark.parametrize(("row", "reason"), BAD, ids=[reason[:40] for _, reason in BAD])
def test_bad_row_is_reported_with_file_line_and_reason(tmp_path: Path, row: Any, reason: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(PAIR)}\n\n{json.dumps(row)}\n")
    with pytest.raises(DataError) as caught:
        load_judgements(str(path))
    assert str(caught.value).startswith(f"{path}, line 3, ")
    assert reason in str(caught.value)
    assert str(caught.value).endswith("Mend the file, or skip_bad_rows leaves it out.")
    assert [bare(found) for found in load_judgements(str(path), skip_bad=True)] == [example(PAIR)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "p"}, "has no column 'completion'. It has: prompt."),
        ({"prompt": "p", "completion": "\n"}, r"has '\n' as its 'completion', expected text"),
        ({"messages": CHAT}, "has no column 'completion'. It has: messages."),
        ({"messages": [*CHAT, *said(" ")]}, "has ' ' as its 'completion'"),
        ({"messages": said("alone")}, "must be a list of messages"),
        ("p", "has no column 'completion'. It has: str."),
    ],
)
def test_row_without_an_answer_is_no_demonstration(tmp_path: Path, row: Any, reason: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError) as caught:
        load_demonstrations(str(tmp_path / "rows.jsonl"))
    assert f"{tmp_path / 'rows.jsonl'}, line 1, {reason}" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"prompt": "café"}'.encode("latin-1"), "is not UTF-8 text"),
        (b'{"prompt": "a"', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"prompt": ' + b"1" * 5000 + b"}", ""),
        (rb'{"prompt": "half \ud83d"}', "holds half a character"),
        (rb'{"prompt": "half \uDE00"}', "holds half a character"),
    ],
)
def test_line_that_cannot_be_read_spoils_no_other(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n' + line + b'\n{"prompt": "whole \\ud83d\\ude00"}\n')
    good, bad = try_rows(str(path), "train", as_example)
    assert [bare(found) for found in good] == [Prompt("a"), Prompt("whole 😀")]
    assert [str(error).startswith(f"{path}, line 2, {reason}") for error in bad] == [True]


def test_skipped_rows_are_counted_in_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": 5}\n{"prompt": "b"}\n{oops\n')
    with pytest.raises(DataError, match=r"line 2, is int .* skip_bad_rows leaves all 2 bad rows out"):
        load_prompts(str(path))
    with caplog.at_level(logging.WARNING):
        assert len(load_prompts(str(path), skip_bad=True)) == 2
    assert f"{path}: 2 of 4 rows left out. The first: {path}, line 2, is int (5)" in caplog.text


def test_nothing_but_bad_rows_is_an_error_even_if_they_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": 5}\n{"prompt": 6}\n')
    with pytest.raises(DataError, match=r"holds no prompts: every row is bad, 2 in all\. The first: .*line 1, is int"):
        load_prompts(str(path), skip_bad=True)
    path.write_text("")
    with pytest.raises(DataError, match=r"holds no judgements \(prompt, chosen, rejected\)\. Give at least one"):
        load_judgements(str(path))


def test_a_file_that_is_cut_off_is_an_error_even_if_bad_rows_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(b'{"prompt": "number %d"}\n' % (i * 7919) for i in range(5000)))[:-2000])
    with pytest.raises(DataError, match=r"rows\.jsonl\.gz cannot be read: .*damaged or cut off: get it again"):
        load_prompts(str(path), skip_bad=True)


# ---- CSV, Parquet, JSON arrays, datasets ----------------------------------------------------------------------------


def test_csv_cells_may_be_empty_quoted_and_chat(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    chat = json.dumps(CHAT).replace('"', '""')
    path.write_text(
        "prompt,messages,completion,chosen,rejected,score,label,tie\n"
        "p,,,a,b,,,\n"
        "p,,,a,a,,,yes\n"
        'p,,"one, ""two""\nthree",,,4.5,,\n'
        "p,,c,,,,down,\n"
        "p,,c,,,,,\n"
        "p,,,,,,,\n"
        f',"{chat}",,,,,,\n'
        "\n"
        "[1] is no chat\n"
    )
    good, bad = try_rows(str(path), "train", as_example)
    prompt = Prompt("p")
    assert not bad
    assert [bare(found) for found in good] == [
        Preference(prompt, "a", "b"),
        Preference(prompt, "a", "a", tie=True),
        Rating(prompt, 'one, "two"\nthree', 4.5),
        Thumb(prompt, "c", False),
        Demonstration(prompt, "c"),
        prompt,
        Prompt(CHAT),
        Prompt("[1] is no chat"),
    ]


def test_bad_csv_rows_are_named_by_the_line_they_begin_in(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(
        b'prompt,completion\n"two\nlines",fine\nWell, well,never mind\n'  # lines 2 and 3; 4
        b'"three\nlines\n",\n'  # 5 to 7
        b"caf\xe9,x\n"  # 8
        b'a "quote,b\n"a" quote,b\nlast,fine\n"open,c\n'  # 9; 10; 11; 12
    )
    good, bad = try_rows(str(path), "train", as_example)
    prompts = [found if isinstance(found, Prompt) else found.prompt for found in good]
    assert [prompt.content for prompt in prompts] == ["two\nlines", "three\nlines\n", 'a "quote', "last"]
    assert [str(error).removeprefix(f"{path}, ")[:40] for error in bad] == [
        "line 4, has 3 cells for 2 columns. Put q",
        "line 8, is not UTF-8 text. Save the file",
        "line 10, cannot be read: ',' expected af",
        "line 12, cannot be read: unexpected end ",
    ]


def test_parquet_messages_with_empty_keys_are_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    tool = [{"role": "user", "content": "x", "tool_calls": "y"}]
    rows = [{"prompt": CHAT, "chosen": said("a"), "rejected": said("b")}, {"prompt": tool, "completion": said("c")}]
    parquet.write_table(pa.Table.from_pylist(rows, schema=pa.table(_columns(rows)).schema), path)
    assert parquet.read_table(path).to_pylist()[0]["prompt"][0]["tool_calls"] is None
    good, bad = try_rows(str(path), "train", as_example)
    assert not bad
    assert [bare(found) for found in good] == [Preference(Prompt(CHAT), "a", "b"), Demonstration(Prompt(tool), "c")]


def _columns(rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {name: pa.array([row.get(name) for row in rows]) for row in rows for name in row}


def test_a_json_array_is_read_item_by_item(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([PAIR, {"prompt": 5}, {"prompt": "half \ud83d"}], indent=1))
    good, bad = try_rows(str(path), "train", as_example)
    assert [bare(found) for found in good] == [example(PAIR)]
    assert [str(error).split(",")[1] for error in bad] == [" item 2", " item 3"]
    path.write_text("\n".join(map(json.dumps, (PAIR, RATED))))  # lines, whatever the name says
    assert len(load_judgements(str(path))) == 2


def test_a_folder_of_the_datasets_library_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    rows: list[dict[str, Any]] = [
        {"chosen": [*CHAT, *said("a")], "rejected": [*CHAT, *said("b")], "annotator": "ann"},
        {"chosen": [*CHAT, *said("a")], "rejected": [*CHAT, *said("a")], "annotator": None},
    ]
    (tmp_path / "data" / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = load_judgements(str(tmp_path / "data"), "test", skip_bad=True)
    assert [bare(row) for row in found] == [Preference(Prompt(CHAT), "a", "b", annotator="ann")]
    with pytest.raises(DataError, match=r"data \(test\), row 2, prefers a text to itself"):
        load_judgements(str(tmp_path / "data"), "test")


def test_one_file_may_hold_several_kinds(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    thumb = {"prompt": "p", "completion": "a", "label": False}
    path.write_text("\n".join(map(json.dumps, (PAIR, RATED, thumb, {"messages": [*CHAT, *said("a")]}, "text"))))
    good, bad = try_rows(str(path), "train", as_example)
    assert [type(found) for found in good] == [Preference, Rating, Thumb, Demonstration, Prompt]
    assert not bad
    assert len(load_judgements(str(path), skip_bad=True)) == 3
    assert len(load_prompts(str(path))) == 5


# ---- whatever is written is read back -------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)
numbers = st.floats(-1e6, 1e6)
weights = st.floats(0, 1e6)
Form = Callable[[str], Any]


def rows_in(prompt: Form, answer: Form) -> st.SearchStrategy[dict[str, Any]]:
    """Rows of all kinds, with texts put into a form."""
    some = {"prompt": texts.map(prompt)}
    rated = some | {"completion": texts.map(answer)}
    judge = {"confidence": weights, "annotator": texts}
    pair = some | {"chosen": texts.map(answer), "rejected": texts.map(answer)}
    return st.one_of(
        st.fixed_dictionaries(some),
        st.fixed_dictionaries(rated),
        st.fixed_dictionaries(rated | {"score": numbers}, optional=judge),
        st.fixed_dictionaries(rated | {"label": st.booleans()}, optional=judge),
        st.fixed_dictionaries(pair, optional=judge | {"margin": weights, "tie": st.booleans()}).filter(
            lambda row: row["chosen"] != row["rejected"] or row.get("tie")
        ),
    )


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def as_cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


@settings(max_examples=50)
@given(st.one_of(st.lists(rows_in(str, str), min_size=1), st.lists(rows_in(asked, said), min_size=1)))
def test_rows_written_to_any_format_are_the_same_examples(rows: list[dict[str, Any]]) -> None:
    expected = [example(row) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "rows.jsonl"
        lines.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        sheet = Path(folder) / "rows.csv"
        with sheet.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
            writer.writeheader()
            writer.writerows({name: as_cell(value) for name, value in row.items()} for row in rows)
        table = Path(folder) / "rows.parquet"
        parquet.write_table(pa.table(_columns(rows)), table)
        for path in (lines, sheet, table):
            good, bad = try_rows(str(path), "train", as_example)
            assert not bad
            assert [bare(found) for found in good] == expected, path.suffix
