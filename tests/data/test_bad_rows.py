"""Every kind of bad row is reported with its file, line and reason, and affects no other row."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ppolm.data.examples import as_example
from ppolm.data.load_rows import load_demonstrations, load_judgements, load_prompts, try_rows
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError
from tests.data.example_rows import CHAT, PAIR, RATED, bare, example, said

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
    assert str(caught.value).endswith("Fix the file, or skip_bad_rows leaves it out.")
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
