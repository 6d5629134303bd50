"""The same examples from JSONL, CSV, Parquet, JSON arrays and datasets."""

from __future__ import annotations

import csv
import json
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

from ppolm.data.examples import Demonstration, Preference, Rating, Thumb, as_example
from ppolm.data.load_rows import load_judgements, load_prompts, try_rows
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError
from tests.data.example_rows import CHAT, PAIR, RATED, bare, example, said

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
    path.write_text("\n".join(map(json.dumps, (PAIR, RATED))))  # JSON lines, in spite of the name
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
    """Rows of all kinds, with their texts converted by ``prompt`` and ``answer``."""
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
