"""CSV files: ambiguous rows are never guessed, silently lost, or trained on as something else."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from ppolm.cli.main import run as ppolm
from ppolm.data.csv_rows import read_csv
from ppolm.data.load_rows import load_prompts
from ppolm.errors import DataError
from ppolm.messages import LONGEST_MESSAGE

CHAT = [{"role": "user", "content": "It's \"hard\", [isn't] it?"}, {"role": "assistant", "content": "no\nyes"}]


def write(folder: Path, text: str) -> str:
    path = folder / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def numbered(broken: dict[int, str]) -> str:
    lines = ["prompt,level", *(broken.get(i, f"prompt {i},{i}") for i in range(1, 1001))]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "broken",
    [
        {5: '"prompt 5,5'},
        {5: '"prompt 5,5', 800: '"prompt 800",800'},
        {5: '"prompt 5,5', 800: 'prompt 800",800'},
        {5: '"prompt 5,5', 800: "prompt 800,800", 999: '"",999'},
    ],
    ids=["to the end of the file", "to the next quoted cell", "closed by a stray quote", "past an empty cell"],
)
def test_a_quote_that_is_not_closed_never_swallows_the_rows_after_it(tmp_path: Path, broken: dict[int, str]) -> None:
    path = write(tmp_path, numbered(broken))
    for skip in (False, True):
        with pytest.raises(DataError, match=r"line 6, opens a quote that is not closed.*skip_bad_rows"):
            load_prompts(path, skip_bad=skip)


def test_a_bad_quote_within_one_line_is_one_bad_row(tmp_path: Path) -> None:
    path = write(tmp_path, numbered({5: '"prompt" 5,5'}))
    assert len(load_prompts(path, skip_bad=True)) == 999
    with pytest.raises(DataError, match="line 6, cannot be read"):
        load_prompts(path)


def test_long_cells_of_many_lines_are_text(tmp_path: Path) -> None:
    poem = "\n".join(f"line {i}, of a poem" if i % 2 else f"and {i}" for i in range(500))
    table = pandas.DataFrame({"prompt": [poem, "x" * 1_000_000], "level": [1, 2]})
    table.to_csv(tmp_path / "rows.csv", index=False)
    before = csv.field_size_limit()
    assert [row.content for row in load_prompts(str(tmp_path / "rows.csv"))] == [poem, "x" * 1_000_000]
    assert csv.field_size_limit() == before, "the limit belongs to the whole process"


def test_a_cell_beyond_the_limit_is_called_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppolm.data.csv_rows.LARGEST_CELL", 100)
    rows = list(read_csv(io.StringIO("prompt\n" + "x" * 200 + "\nfine\n"), "file.csv"))
    assert "field larger than field limit" in str(rows[0][1])
    assert rows[1][1] == {"prompt": "fine"}


def test_messages_that_pandas_wrote_are_messages(tmp_path: Path) -> None:
    pandas.DataFrame({"messages": [CHAT, CHAT[:1]]}).to_csv(tmp_path / "rows.csv", index=False)
    prompts = load_prompts(str(tmp_path / "rows.csv"))
    assert [prompt.content for prompt in prompts] == [CHAT[:1], CHAT[:1]]
    pandas.DataFrame({"prompt": [json.dumps(CHAT[:1])]}).to_csv(tmp_path / "rows.csv", index=False)
    assert load_prompts(str(tmp_path / "rows.csv"))[0].content == CHAT[:1]


@pytest.mark.parametrize(
    "cell",
    [
        "[{'role': 'user', 'content': 'hi'}\n {'role': 'assistant', 'content': 'no'}]",  # a NumPy array, printed
        "[{'role': 'user', 'content': open('/etc/passwd').read()}]",
        "[{'role': 'user', 'content': 'cut off",
        "[{'role': 'user', 'content': " + "[" * 100_000,
    ],
)
def test_messages_that_cannot_be_read_are_refused_and_not_trained_on_as_text(tmp_path: Path, cell: str) -> None:
    pandas.DataFrame({"prompt": [cell, "fine"], "level": [1, 2]}).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError, match=r"messages as its 'prompt' that cannot be read.*json\.dumps"):
        load_prompts(str(tmp_path / "rows.csv"))
    assert [p.content for p in load_prompts(str(tmp_path / "rows.csv"), skip_bad=True)] == ["fine"]


def test_text_that_begins_with_a_bracket_stays_text(tmp_path: Path) -> None:
    path = write(tmp_path, 'prompt\n[WP] You wake up.\n"[1, 2, 3]"\n')
    assert [prompt.content for prompt in load_prompts(path)] == ["[WP] You wake up.", "[1, 2, 3]"]


def test_a_column_that_is_there_twice_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 columns called 'prompt'"):
        load_prompts(write(tmp_path, "prompt,level,prompt\na,1,b\n"), skip_bad=True)
    assert len(load_prompts(write(tmp_path, "prompt,,\na,,\n"))) == 1, "spreadsheets add empty columns"


def test_what_data_check_prints_drives_no_terminal_and_fills_none(tmp_path: Path, capsys: Any) -> None:
    names = "\x1b[31mred\x1b[0m", "\x9b2J", "x" * 5000
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "a", **dict.fromkeys(names, 1)}) + "\n" + json.dumps({"\x1b[2J" * 999: 1}))
    for flags in ([], ["--json"]):
        assert ppolm(["data", "check", str(path), *flags]) == 1
        out, err = capsys.readouterr()
        assert not set("\x1b\x9b") & set(out + err)
        assert all(len(line) <= LONGEST_MESSAGE + 10 for line in err.splitlines())
