"""Rows of public datasets are converted to our columns, in the same way for every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run
from ppolm.data.dataset_shapes import shape_of, standard_row
from ppolm.data.examples import Demonstration, as_example
from ppolm.data.load_rows import load_demonstrations, load_judgements, load_prompts
from ppolm.data.prompts import Prompt, as_prompt
from ppolm.data.read_rows import MOST_ENTRIES, DatasetName, read_rows
from ppolm.errors import DataError
from tests.public_shapes import SHAPES, chat, rows_of, transcript, write


@pytest.mark.parametrize("name", SHAPES)
def test_a_row_becomes_what_the_page_says(name: str) -> None:
    example = as_example(rows_of(name, 1)[0], "row")
    assert not isinstance(example, Prompt)
    assert example.prompt.content == SHAPES[name][2]
    assert list(example.answers.values()) == SHAPES[name][3]


@pytest.mark.parametrize("name", SHAPES)
def test_ppo_samples_from_the_prompt_that_people_judged(name: str) -> None:
    for row in rows_of(name, 3):
        example = as_example(row, "row")
        assert not isinstance(example, Prompt)
        assert as_prompt(row, "row").content == example.prompt.content


@pytest.mark.parametrize("name", SHAPES)
def test_a_row_in_our_columns_stays_as_it_is(name: str) -> None:
    for row in rows_of(name, 1):
        standard = standard_row(row, "row")
        assert standard_row(standard, "row") == standard
        assert shape_of(standard) is None


@pytest.mark.parametrize("name", SHAPES)
def test_data_check_says_what_the_commands_read(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.jsonl", rows_of(name, 3))
    assert run(["data", "check", str(path), "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["files"]
    prompts = {prompt.key: prompt for prompt in load_prompts(str(path))}
    assert report["kinds"] == {SHAPES[name][1]: 6}
    assert report["duplicates"]["different_prompts"] == len(prompts) == 3
    assert report["chat"] == 6 * isinstance(SHAPES[name][2], list)
    load = load_demonstrations if SHAPES[name][1] == "demonstrations" else load_judgements
    assert len(load(str(path))) == 6
    ours = ("KTO thumbs", "our own comparisons", "our own demonstrations", "conversations")
    assert sum(report["shapes"].values()) == (0 if name in ours else 6)


def test_the_judges_of_summaries_are_known() -> None:
    first, second = (as_example(row, "row") for row in rows_of("OpenAI TL;DR comparisons", 1))
    assert (first.annotator, second.annotator) == ("w0", "w1")  # type: ignore[union-attr]
    assert first.chosen == second.chosen == " I need help 0."  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"chosen": transcript("a", "b"), "rejected": transcript("c", "d")}, "differ before their last message"),
        ({"chosen": transcript("a", "b", "c"), "rejected": transcript("a", "d", "c")}, "ends with the human"),
        ({"prompt": "else", "chosen": chat("a", "b"), "rejected": chat("a", "c")}, "another 'prompt'"),
        ({"prompt": "else", "messages": chat("a", "b")}, "nobody asks in its 'messages'"),
        ({"info": {}, "summaries": [], "choice": 0}, "expected two summaries"),
        ({"info": {}, "summaries": [{"text": "a"}, {"text": "b"}], "choice": 1}, "no 'subreddit' in its 'info'"),
        ({"info": {}, "summary": {"text": "a", "axes": {}}}, "no 'overall'"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused_by_every_command(row: dict[str, Any], problem: str) -> None:
    for read in (as_example, as_prompt):
        with pytest.raises(DataError, match=problem):
            read(row, "row")


def test_a_completion_in_chat_form_is_the_reference_for_rouge() -> None:
    row = {"prompt": chat("Name a colour."), "completion": [{"role": "assistant", "content": "Blue."}]}
    assert as_prompt(row, "row").reference == "Blue."
    assert isinstance(as_example(row, "row"), Demonstration)


# ---- Data sets by name, configuration and split ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("org/name", ("org/name", None, "train")),
        ("org/name:test", ("org/name", None, "test")),
        ("org/name/hard:test[:10]", ("org/name", "hard", "test[:10]")),
        ("name:test", ("name", None, "test")),
    ],
)
def test_a_name_says_configuration_and_split(source: str, expected: tuple[str, str | None, str]) -> None:
    assert DatasetName.parse(source, "train") == DatasetName(*expected)


def test_a_folder_of_data_has_configurations_and_splits(tmp_path: Path) -> None:
    folder = tmp_path / "colours"
    for config in ("easy", "hard"):
        for split in ("train", "test"):
            (folder / config).mkdir(parents=True, exist_ok=True)
            write(folder / config / f"{split}.jsonl", [{"prompt": f"{config} {split}"}])
    (folder / "README.md").write_text(
        "---\nconfigs:\n"
        + "".join(
            f"- config_name: {config}\n  data_files:\n"
            + "".join(f"  - split: {split}\n    path: {config}/{split}.jsonl\n" for split in ("train", "test"))
            for config in ("easy", "hard")
        )
        + "---\n"
    )
    for config in ("easy", "hard"):
        assert [row for _, row in read_rows(f"{folder}/{config}:test")] == [{"prompt": f"{config} test"}]
    assert [row for _, row in read_rows(f"{folder}/hard")] == [{"prompt": "hard train"}]


def test_a_folder_of_everything_is_no_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder has hundreds of thousands of files, and the library would scan each of them many times."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for part in ("mail", ".cache"):
        (tmp_path / part / "old").mkdir(parents=True)
        for i in range(MOST_ENTRIES // 2):
            (tmp_path / part / "old" / f"{i}").touch()
    (tmp_path / "train.jsonl").write_text('{"prompt": "a"}\n')
    for source in ("~", str(tmp_path), f"{tmp_path}:train", "~/mail/.."):
        with pytest.raises(DataError, match=f"more than {MOST_ENTRIES:,} files and folders.*that holds the rows"):
            list(read_rows(source))
    assert len(list(read_rows("~/train.jsonl"))) == 1


@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
def test_a_name_that_no_file_system_takes_is_no_data_set(name: str) -> None:
    with pytest.raises(DataError, match="neither a file nor a dataset"):
        list(read_rows(name))


def test_a_folder_that_leads_into_itself_is_looked_through_once(tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(tmp_path)
    write(tmp_path / "train.jsonl", [{"prompt": "a"}])
    assert [row for _, row in read_rows(str(tmp_path))] == [{"prompt": "a"}]
