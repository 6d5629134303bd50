"""``ppolm data check``: its output, and the examples in docs/data-formats.md."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from ppolm.cli.main import run as ppolm
from ppolm.data.check import report_of
from ppolm.data.load_rows import load_demonstrations, load_judgements, load_prompts
from ppolm.data.tally import tally_rows
from tests.conftest import ROOT, SHARED_DATA, needs_shared_data
from tests.data.check_rows import pair, rated, write

Check = Callable[..., Any]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Run the command; returns its status, its output (parsed if it is JSON) and its error line."""

    def run(*arguments: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        status = ppolm(["data", *arguments])
        out, err = capsys.readouterr()
        return status, json.loads(out) if "--json" in arguments else out, err.strip()

    return run


# ---- the command ----------------------------------------------------------------------------------------------------


def test_bad_rows_are_shown_and_end_with_status_1_unless_skipped(tmp_path: Path, check: Check) -> None:
    path = write(tmp_path / "d.jsonl", {"prompt": "p"}, *[{"prompt": 5}] * 6, "{oops\n")
    status, out, err = check("check", path)
    assert status == 1
    assert "bad rows        7 of 8" in out
    assert f"{path}, line 2, is int (5)" in " ".join(out.split())
    assert "... and 2 more" in out
    assert err == (
        "error: 7 rows are bad. Fix the files, or leave bad rows out with --skip-bad-rows, here and in training."
    )
    assert check("check", path, "--skip-bad-rows")[0] == 0
    status, found, _ = check("check", path, "--json")
    assert status == 1
    assert found["files"][0]["bad_rows"]["count"] == 7
    assert len(found["files"][0]["bad_rows"]["first"]) == 5


def test_a_file_of_bad_rows_alone_is_reported(tmp_path: Path, check: Check) -> None:
    status, out, _ = check("check", write(tmp_path / "d.jsonl", "{oops\n"))
    assert status == 1
    assert "none that can be used" in out


def test_several_files_are_the_splits_of_one_dataset(tmp_path: Path, check: Check) -> None:
    one = write(tmp_path / "train.jsonl", pair("p", "a b", "c"), pair("q", "c", "d e"))
    two = write(tmp_path / "test.jsonl", pair("q", "c", "f"))
    status, out, err = check("check", one, two)
    assert (status, err) == (0, "")
    assert out.index(one) < out.index(two) < out.index("leakage between the files")
    assert "prompts       1 shared, 100.0 % of those in the smaller file, such as 'q'" in out
    assert "answers       1 shared, 50.0 % of those in the smaller file, such as 'c'" in out
    assert "leakage" not in check("check", one)[1]


def test_lines_are_at_most_100_wide(tmp_path: Path, check: Check) -> None:
    long = "An answer that goes on, " * 40
    rows = [pair(f"p{n}" * 90, f" {long}{n}", long, annotator=f"annotator-{n}", tie=n == 3) for n in range(30)]
    paths = [write(tmp_path / f"{name}.jsonl", *rows, {"prompt": [long]}) for name in ("one", "two")]
    out = check("check", *paths)[1]
    assert "... and" not in out
    assert max(len(line) for line in out.splitlines() if str(tmp_path) not in line) <= 100


def test_lengths_in_tokens_and_rows_beyond_the_context(tmp_path: Path, model_folder: Path, check: Check) -> None:
    path = write(tmp_path / "d.jsonl", rated("p" * 100, "a" * 27), rated("p" * 100, "a" * 28), {"prompt": "p" * 129})
    status, found, _ = check("check", path, "--model-name", str(model_folder), "--json")
    assert status == 0
    [file] = found["files"]
    assert file["tokens"]["completion"] == {"median": 28, "p95": 28, "max": 28}  # a token is a byte
    assert file["context"] == {"length": 128, "rows_over": 2, "longest_row": 129}  # 100 + 27 + EOS still fits
    out = check("check", path, "--model-name", str(model_folder))[1]
    assert "tokens: median" in out
    assert "2 rows exceed the model's context of 128" in out


def test_a_tokenizer_alone_will_do_and_its_absence_is_explained(
    tmp_path: Path, model_folder: Path, check: Check
) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    path = write(tmp_path / "d.jsonl", {"prompt": "p"}, chat)
    alone = tmp_path / "tokenizer"
    alone.mkdir()
    for file in model_folder.glob("*token*"):
        (alone / file.name).write_bytes(file.read_bytes())
    status, out, _ = check("check", path, "--model-name", str(alone))
    assert status == 0
    assert "context         unknown; the longest row has" in out
    assert "does not exist" in check("check", path, "--model-name", "./nowhere")[2]
    (tmp_path / "empty").mkdir()
    status, _, err = check("check", path, "--model-name", str(tmp_path / "empty"))
    assert status == 1
    assert "tokenizer" in err
    assert "cannot be reached" in check("check", path, "--model-name", "nobody/nothing")[2]


def test_splits_of_a_dataset_name(tmp_path: Path, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "train.jsonl", {"prompt": "p"}, {"prompt": "q"})
    write(folder / "test.jsonl", {"prompt": "q"})
    status, found, _ = check("check", str(folder), "--split", "train", "--split", "test", "--json")
    assert status == 0
    assert [file["source"] for file in found["files"]] == [f"{folder} (train)", f"{folder} (test)"]
    assert found["leakage"][0]["prompts"]["count"] == 1
    assert check("check", str(folder), "--json")[1]["files"][0]["rows"] == 2


def test_the_embedded_world_by_either_name(check: Check) -> None:
    found = check("check", "embedded:validation", "embedded:test", "--json")[1]
    assert [file["kinds"] for file in found["files"]] == [{"preferences": 256}] * 2
    assert found["leakage"][0]["prompts"]["count"] == 0
    same = check("check", "embedded", "--split", "validation", "--json")[1]["files"][0]
    assert same | {"source": ""} == found["files"][0] | {"source": ""}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "needs to know what to do. Write: ppolm data check FILE"),
        (["chekc"], "Unknown sub-command 'chekc' of ppolm data. Did you mean 'check'?"),
        (["README.md"], "Unknown sub-command 'README.md' of ppolm data. Write: ppolm data check README.md"),
        (["show"], "Write: ppolm data check FILE"),
        (["check"], "There is nothing to check"),
        (["check", "absent.jsonl"], "File absent.jsonl does not exist"),
        (["check", "README.md", "README.md"], "named twice"),
        (["check", "README.md", "--split", "test"], "only files were given"),
        (["check", "README.md"], "unknown ending"),
    ],
)
def test_mistakes_are_explained(
    check: Check, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(ROOT)
    status, out, err = check(*arguments)
    assert (status, out) == (1, "")
    assert message in err


def test_an_empty_file_is_an_error(tmp_path: Path, check: Check) -> None:
    path = write(tmp_path / "d.jsonl")
    assert check("check", path)[2] == f"error: {path} holds no rows. Give a file with at least one."
    status, out, _ = check("--help")
    assert status == 0
    assert "ppolm data check FILE" in out


@needs_shared_data
def test_real_comparisons(check: Check) -> None:
    files = [str(SHARED_DATA / "tldr" / f"comparisons.{split}.jsonl.gz") for split in ("train", "valid")]
    status, found, _ = check("check", *files, "--json")
    assert status == 0
    train, valid = found["files"]
    assert [file["kinds"] for file in (train, valid)] == [{"preferences": 7987}, {"preferences": 1019}]
    wins = train["preferences"]["longer_wins"]
    assert 0.5 < wins["low"] < wins["mean"] < wins["high"] < 0.65
    assert wins["pairs"] + wins["equal_length"] == 7987
    assert found["leakage"][0]["prompts"]["count"] == 0  # they were split by post


# ---- the page -------------------------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "data-formats.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_every_json_example_of_the_page_loads_as_the_kind_it_stands_under(tmp_path: Path) -> None:
    loaders: dict[str, Callable[[str], list[Any]]] = {
        "Prompts": load_prompts,
        "Demonstrations": load_demonstrations,
        "Preferences": load_judgements,
        "Scores": load_judgements,
        "Thumbs": load_judgements,
    }
    sections = re.findall(r"^## (\w+).*?\n(.*?)(?=^## )", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    shown = {title: re.findall(r"```json\n(.*?)```", body, re.DOTALL) for title, body in sections}
    assert {title for title, found in shown.items() if found} == loaders.keys()
    for title, load in loaders.items():
        forms = set()
        for number, block in enumerate(shown[title]):
            path = tmp_path / f"{title}-{number}.jsonl"
            path.write_text(block)
            rows = load(str(path))
            assert len(rows) == len(block.splitlines())
            forms |= {type(getattr(row, "prompt", row).content) for row in rows}
            [kind] = report_of(tally_rows(((f"{path},", json.loads(line)) for line in block.splitlines()), "x"))[
                "kinds"
            ]
            assert kind == title.lower()
        assert forms == {str, list}, title


def test_csv_example_of_the_page_loads(tmp_path: Path) -> None:
    [table] = blocks("csv")
    (tmp_path / "d.csv").write_text(table)
    assert len(load_judgements(str(tmp_path / "d.csv"))) == 3


def test_output_on_the_page_is_what_the_command_prints(
    tmp_path: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows, shown = blocks("jsonl"), blocks("text")
    (tmp_path / "train.jsonl").write_text(rows[0])
    (tmp_path / "valid.jsonl").write_text(rows[1])
    status, out, err = check("check", "train.jsonl", "valid.jsonl")
    assert status == 1
    assert f"{out}{err}\n" == shown[0]
