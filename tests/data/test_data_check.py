"""``ppolm data check``: every number of hand-made files, and what a user reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppolm.cli.main import run as ppolm
from ppolm.data.check import correlation_of, leakage_of, longer_wins, report_of
from ppolm.data.examples import KINDS
from ppolm.data.load_rows import load_demonstrations, load_judgements, load_prompts
from ppolm.data.tally import COLUMNS, digest, tally_rows
from tests.conftest import ROOT, SHARED_DATA, needs_shared_data

Check = Callable[..., Any]


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return str(path)


def report(*rows: Any) -> dict[str, Any]:
    return report_of(tally_rows([(f"here, line {number},", row) for number, row in enumerate(rows, 1)], "here"))


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Run the command; its status, its output (parsed, if it is JSON) and its error line."""

    def run(*arguments: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        status = ppolm(["data", *arguments])
        out, err = capsys.readouterr()
        return status, json.loads(out) if "--json" in arguments else out, err.strip()

    return run


def pair(prompt: str, chosen: str, rejected: str, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **more}


def rated(prompt: str, completion: str, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "completion": completion, **more}


# ---- numbers of hand-made files -------------------------------------------------------------------------------------


def test_kinds_columns_and_forms_are_counted() -> None:
    chat = [{"role": "user", "content": "Hi"}]
    found = report(
        pair("p", "a", "b", id=1), rated("p", "a", label=1), rated("p", "a", score=1), rated("p", "a"), {"prompt": chat}
    )
    assert found["rows"] == 5
    assert found["kinds"] == {"preferences": 1, "thumbs": 1, "scores": 1, "demonstrations": 1, "prompts": 1}
    assert (found["chat"], found["text"]) == (1, 4)
    assert found["other_columns"] == {"id": 1}
    assert COLUMNS.keys() == KINDS.keys()


def test_lengths_are_in_words_with_median_high_end_and_maximum() -> None:
    rows = [rated("one two three", "w " * number) for number in range(1, 101)]
    found = report(*rows, {"messages": [{"role": "user", "content": "a b"}, {"role": "user", "content": "c d"}]})
    assert found["words"]["completion"] == {"median": 51, "p95": 96, "max": 100}
    assert found["words"]["prompt"] == {"median": 3, "p95": 3, "max": 4}


def test_duplicates_conflicts_and_repeated_prompts() -> None:
    found = report(
        pair("p", "a", "b"),
        pair("p", "a", " b "),  # again, white space aside
        pair("p", "b", "a"),  # the opposite
        pair("p", "a", "b", tie=True),  # no contradiction
        pair("q", "b", "a"),  # another prompt
        pair("q", "b", "a", annotator="ann"),  # somebody else agrees
        rated("r", "a", label=True),
        rated("r", "a", label=False),
        rated("r", "b", label=False),
    )["duplicates"]
    assert found == {
        "identical_rows": 1,
        "conflicts": 2,
        "different_prompts": 3,
        "repeated_prompts": 3,
        "most_rows_of_a_prompt": 4,
    }


def test_how_often_the_longer_answer_wins_is_averaged_within_each_prompt_first() -> None:
    found = report(
        pair("p", "a b c", "a"),
        pair("p", "a b", "c"),
        pair("p", "a c", "d"),
        pair("q", "a", "a b"),
        pair("q", "c d", "a b"),  # equal length
        pair("q", "a", "b c d", tie=True),
    )["preferences"]
    assert found["ties"] == 1
    wins = found["longer_wins"]
    assert wins["mean"] == 0.5  # 3 of 3 and 0 of 1
    assert (wins["low"], wins["high"]) == (0.0, 1.0)
    assert (wins["prompts"], wins["pairs"], wins["equal_length"]) == (2, 4, 1)
    assert wins["baseline_accuracy"] == 0.7  # 3 of 5, and half a point for the equal ones
    assert report(pair("p", "a", "b"))["preferences"]["longer_wins"] is None
    assert longer_wins([]) is None


def test_scores_thumbs_and_annotators() -> None:
    found = report(
        rated("p", "a", score=1, annotator="ann"),
        rated("p", "a b", score=2, annotator="ann"),
        rated("p", "a b c", score=6, annotator="bob"),
        rated("p", "a", label="up"),
        rated("p", "a b", label="down"),
        rated("p", "a b c d", label="down"),
    )
    expected = np.corrcoef([1, 2, 6], [1, 2, 3])[0, 1]
    assert found["scores"] == {
        "min": 1,
        "max": 6,
        "mean": 3,
        "deviation": pytest.approx(np.std([1, 2, 6])),
        "different": 3,
        "length_correlation": pytest.approx(expected),
    }
    assert found["thumbs"]["up"] == pytest.approx(1 / 3)
    assert found["thumbs"]["length_correlation"] == pytest.approx(np.corrcoef([1, 0, 0], [1, 2, 4])[0, 1])
    assert found["annotators"] == {"different": 2, "most": {"ann": 2, "bob": 1}}
    assert correlation_of([1, 1], [2, 3]) is None


def test_leakage_between_sources() -> None:
    sources = [[pair("p", "a", "b"), rated("q", "c")], [rated("q  ", "x"), {"prompt": "r"}, {"prompt": "s"}]]
    tallies = [tally_rows([("row,", row) for row in rows], name) for name, rows in zip("AB", sources, strict=True)]
    assert leakage_of(tallies) == [
        {
            "sources": ["A", "B"],
            "prompts": {"count": 1, "share": 0.5, "example": "'q'"},
            "answers": {"count": 0, "share": 0.0, "example": None},
        }
    ]
    assert leakage_of(tallies[:1]) == []


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        ([pair("p", " a", "b"), pair("p", "c", "d")], "1 of 4 answers begin with a space, the others do not"),
        ([{"prompt": "p "}, {"prompt": "q"}], "1 of 2 prompts end in white space"),
        ([{"messages": [{"role": "user", "content": " "}]}], "1 conversations end in an empty message"),
        ([pair("p", "a", "no"), pair("q", "b", "no")], "'rejected' is the same text in every row"),
        ([pair("p", "a", "b", tie=1), pair("q", "c", "d", tie=1)], "Every preference is a tie"),
        ([rated("p", "a", label=0), rated("q", "b", label=0)], "Every thumb points down"),
        ([rated("p", "a", label=1), rated("q", "b", label=1)], "Every thumb points up"),
        ([rated("p", "a", score=2), rated("q", "b", score=2)], "Every score is 2"),
        ([rated("p", "a"), rated("q", "b"), {"prompt": "p"}], "The first of the prompts is here, line 3."),
        ([{"prompt": "p"}, {"prompt": [{"role": "user", "content": "x"}]}], "1 of 2 prompts are chat messages"),
    ],
)
def test_traps_are_named(rows: list[Any], warning: str) -> None:
    assert [text for text in report(*rows)["warnings"] if warning in text]


def test_sound_data_brings_no_warning() -> None:
    assert report(pair("p", " a", " b"), pair("q", " c", " d", tie=True))["warnings"] == []
    assert report(rated("p", "a", score=1), rated("q", "b", score=2))["warnings"] == []
    assert report({"prompt": "p"})["warnings"] == []


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_different_lists_of_texts_have_different_digests(one: list[str], other: list[str]) -> None:
    keys = [digest([digest(text) for text in texts]) for texts in (one, other)]
    same = [text.split() for text in one] == [text.split() for text in other]
    assert (keys[0] == keys[1]) == same


# ---- the command ----------------------------------------------------------------------------------------------------


def test_bad_rows_are_shown_and_end_with_status_1_unless_skipped(tmp_path: Path, check: Check) -> None:
    path = write(tmp_path / "d.jsonl", {"prompt": "p"}, *[{"prompt": 5}] * 6, "{oops\n")
    status, out, err = check("check", path)
    assert status == 1
    assert "bad rows        7 of 8" in out
    assert f"{path}, line 2, is int (5)" in " ".join(out.split())
    assert "... and 2 more" in out
    assert err == (
        "error: 7 rows are bad. Mend the files, or --skip-bad-rows leaves bad rows out, here and in training."
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
