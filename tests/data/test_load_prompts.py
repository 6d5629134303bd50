"""Prompts from every file format, and errors that name the file and the line."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from ppolm.data.load_rows import load_prompts
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError
from tests.conftest import SHARED_DATA, needs_shared_data

CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Who are you?"}]
ROWS: list[dict[str, Any]] = [
    {"prompt": "What is a cat?", "answer": "an animal", "level": 1},
    {"prompt": 'Say "héllo",\nplease ☕', "answer": "héllo", "level": 2},
]
ROWS_ALL_TEXT = [{**row, "level": str(row["level"])} for row in ROWS]  # CSV has only text


def write_jsonl(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_jsonl_gz(path: Path, rows: list[Any]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_csv(path: Path, rows: list[Any]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: list[Any]) -> None:
    parquet.write_table(pa.Table.from_pylist(rows), path)


WRITERS: dict[str, Callable[[Path, list[Any]], None]] = {
    "jsonl": write_jsonl,
    "jsonl.gz": write_jsonl_gz,
    "csv": write_csv,
    "parquet": write_parquet,
}
with_messages = pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "parquet"])


def error_of(path: Path | str) -> str:
    with pytest.raises(DataError) as caught:
        load_prompts(str(path))
    return str(caught.value)


# ---- files that are fine --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", WRITERS)
def test_prompts_and_extra_columns_of_every_format_are_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"prompts.{ending}"
    WRITERS[ending](path, ROWS)
    expected = ROWS_ALL_TEXT if ending == "csv" else ROWS
    assert load_prompts(str(path)) == [
        Prompt(row["prompt"], {"answer": row["answer"], "level": row["level"]}) for row in expected
    ]


@with_messages
def test_chat_messages_are_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"chats.{ending}"
    WRITERS[ending](path, [{"messages": CHAT, "topic": "self"}])
    assert load_prompts(str(path)) == [Prompt(CHAT, {"topic": "self"})]


@with_messages
def test_last_assistant_message_of_a_conversation_becomes_the_reference(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"chats.{ending}"
    WRITERS[ending](path, [{"messages": [*CHAT, {"role": "assistant", "content": "A program."}]}])
    [prompt] = load_prompts(str(path))
    assert prompt.content == CHAT
    assert prompt.reference == "A program."
    assert prompt.columns == {"reference": "A program."}


@pytest.mark.parametrize("text", ["One\nTwo  \n\n \nThree", "One\r\nTwo  \r\n\r\nThree\r\n"])
def test_each_line_of_a_text_file_is_a_prompt(tmp_path: Path, text: str) -> None:
    (tmp_path / "prompts.txt").write_bytes(text.encode())
    assert [prompt.content for prompt in load_prompts(str(tmp_path / "prompts.txt"))] == ["One", "Two  ", "Three"]


def test_blank_lines_between_json_lines_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('\n{"prompt": "a"}\n\n  \n{"prompt": "b"}\n\n')
    assert [prompt.content for prompt in load_prompts(str(tmp_path / "p.jsonl"))] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "text"), [("p.csv", "prompt,answer\nhello,x\n"), ("p.jsonl", '{"prompt": "hello", "answer": "x"}\n')]
)
def test_byte_order_mark_of_a_spreadsheet_is_not_part_of_the_data(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert load_prompts(str(tmp_path / name)) == [Prompt("hello", {"answer": "x"})]


def test_endings_in_capitals_are_read_too(tmp_path: Path) -> None:
    write_jsonl_gz(tmp_path / "PROMPTS.JSONL.GZ", ROWS)
    assert len(load_prompts(str(tmp_path / "PROMPTS.JSONL.GZ"))) == 2


def test_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_jsonl(tmp_path / "p.jsonl", ROWS)
    assert len(load_prompts("~/p.jsonl")) == 2


def test_folder_of_data_files_is_read_as_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    write_jsonl(tmp_path / "data" / "train.jsonl", ROWS)
    write_jsonl(tmp_path / "data" / "test.jsonl", [{"prompt": "", "answer": "x", "level": 1}])
    assert [prompt.content for prompt in load_prompts(str(tmp_path / "data"))] == [row["prompt"] for row in ROWS]
    with pytest.raises(DataError, match=r"data \(test\), row 1, is empty"):
        load_prompts(str(tmp_path / "data"), split="test")
    with pytest.raises(DataError, match="neither a file nor a dataset that loads"):
        load_prompts(str(tmp_path / "data"), split="absent")


@needs_shared_data
def test_real_posts_are_read_with_their_references() -> None:
    prompts = load_prompts(str(SHARED_DATA / "tldr" / "posts.valid.jsonl.gz"))
    assert len(prompts) == 103
    for prompt in prompts:
        assert isinstance(prompt.content, str)
        assert prompt.content.startswith("SUBREDDIT: r/")
        assert prompt.content.endswith("TL;DR:")
        assert prompt.reference == prompt.columns["completion"]
        assert prompt.reference


# ---- files that are not ---------------------------------------------------------------------------------------------

GOOD_LINE = '{"prompt": "fine"}\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "x"', "is not JSON"),
        ("hello", "is not JSON"),
        ('{"question": "x", "id": 4}', "has neither a 'prompt' nor a 'messages' column. Its columns: question, id"),
        ("{}", "has neither a 'prompt' nor a 'messages' column. Its columns: none"),
        ('{"prompt": null}', "has neither a 'prompt' nor a 'messages' column"),
        ('{"prompt": ""}', "is empty"),
        ('{"prompt": " \\n "}', "is empty"),
        ('{"prompt": 5}', "is int (5), expected text or a list of chat messages"),
        ('{"prompt": {"text": "x"}}', "is dict ({'text': 'x'}), expected text"),
        ("5", "is int (5), expected text"),
        ('{"messages": []}', "must be a list of messages"),
        ('{"messages": ["hello"]}', "must be a list of messages, each with 'role' and 'content'"),
        ('{"messages": [{"role": "user"}]}', "must be a list of messages, each with 'role' and 'content'"),
        ('{"messages": [{"role": "user", "content": 5}]}', "must be a list of messages"),
        ('{"messages": [{"role": "assistant", "content": "only me"}]}', "must be a list of messages"),
    ],
)
def test_bad_line_is_an_error_that_names_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(GOOD_LINE * 2 + line + "\n" + GOOD_LINE)
    error = error_of(path)
    assert error.startswith(f"{path}, line 3, ")
    assert message in error


def test_bad_line_of_a_compressed_file_is_named(tmp_path: Path) -> None:
    write_jsonl_gz(tmp_path / "p.jsonl.gz", [{"prompt": "fine"}, {"prompt": ""}])
    assert f"{tmp_path / 'p.jsonl.gz'}, line 2, is empty" in error_of(tmp_path / "p.jsonl.gz")


def test_bad_line_of_a_csv_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("prompt,answer\nfine,1\n,2\n")
    assert f"{path}, line 3, is empty" in error_of(path)
    path.write_text("question,answer\nfine,1\n")
    assert f"{path}, line 2, has neither a 'prompt' nor a 'messages' column. Its columns: question, answer" in error_of(
        path
    )


def test_bad_row_of_a_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    write_parquet(path, [{"prompt": "fine"}, {"prompt": "  "}])
    assert f"{path}, row 2, is empty" in error_of(path)
    write_parquet(path, [{"text": "fine"}])
    assert f"{path}, row 1, has neither a 'prompt' nor a 'messages' column. Its columns: text" in error_of(path)
    write_parquet(path, [{"prompt": 5}])
    assert f"{path}, row 1, is int (5), expected text" in error_of(path)


@pytest.mark.parametrize(
    ("name", "text"), [("p.jsonl", ""), ("p.jsonl", "\n\n"), ("p.txt", " \n"), ("p.csv", "prompt\n"), ("p.csv", "")]
)
def test_file_without_prompts_is_an_error_that_names_it(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert error_of(tmp_path / name) == f"{tmp_path / name} holds no prompts. Give at least one."


def test_parquet_file_without_rows_is_an_error_that_names_it(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"prompt": pa.array([], pa.string())}), tmp_path / "p.parquet")
    assert f"{tmp_path / 'p.parquet'} holds no prompts" in error_of(tmp_path / "p.parquet")


@pytest.mark.parametrize("ending", ["jsonl", "json", "jsonl.gz", "csv", "parquet", "txt"])
def test_missing_file_is_an_error_that_names_it(tmp_path: Path, ending: str) -> None:
    assert f"{tmp_path}/absent.{ending} does not exist" in error_of(tmp_path / f"absent.{ending}")


def test_folder_without_data_is_an_error_that_names_it(tmp_path: Path) -> None:
    assert str(tmp_path) in error_of(tmp_path)


@pytest.mark.parametrize("name", ["p.xlsx", "p.docx.gz", "p"])
def test_unknown_ending_is_an_error_that_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("hello\n")
    error = error_of(tmp_path / name)
    assert f"{tmp_path / name} has an unknown ending" in error
    assert "Expected .jsonl, .jsonl.gz, .csv, .parquet or .txt" in error


def test_damaged_compressed_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl.gz"
    write_jsonl_gz(path, [{"prompt": f"number {i * 7919}"} for i in range(500)])
    whole = path.read_bytes()
    middle = len(whole) // 2
    damaged = {
        "not compressed at all": GOOD_LINE.encode(),
        "cut off": whole[:middle],
        "a few bytes wrong": whole[:middle] + b"\xff\xff\xff\xff\xff\xff" + whole[middle + 6 :],
        "wrong checksum": whole[:-8] + bytes(8),
    }
    for how, content in damaged.items():
        path.write_bytes(content)
        assert str(path) in error_of(path), how


def test_damaged_parquet_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    write_parquet(path, [{"prompt": f"number {i}"} for i in range(200)])
    whole = path.read_bytes()
    damaged = {
        "text": b"hello",
        "cut off": whole[:-100],
        "wrong footer": whole[:-60] + bytes(52) + whole[-8:],
        "nothing": b"",
    }
    for how, content in damaged.items():
        path.write_bytes(content)
        assert str(path) in error_of(path), how


@pytest.mark.parametrize("name", ["p.jsonl", "p.csv", "p.txt"])
def test_row_that_is_not_utf8_is_an_error_that_names_file_and_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes('prompt\n{"prompt": "café"}\n'.encode("latin-1")[0 if name == "p.csv" else 7 :])
    line = 2 if name == "p.csv" else 1
    assert error_of(tmp_path / name).startswith(f"{tmp_path / name}, line {line}, is not UTF-8 text")


def test_unknown_dataset_without_network_is_an_error_that_says_both() -> None:
    error = error_of("nobody/no-such-dataset")
    assert "'nobody/no-such-dataset' is neither a file nor a dataset that loads" in error
    assert "The Hugging Face Hub cannot be reached" in error
    assert "Give a .jsonl" in error
