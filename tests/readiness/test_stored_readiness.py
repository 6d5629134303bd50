"""A stored report reads back whole; whatever is damaged in it is a gap with a name, never an error."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppolm.data.examples import Preference
from ppolm.data.prompts import Prompt
from ppolm.readiness import assess
from ppolm.readiness.stored import LONGEST_TEXT, stored_readiness


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    def rule(_: Any, texts: Sequence[str]) -> list[float]:
        return [len(text) % 11 / 10 for text in texts]

    pairs = [("yes " * (i % 7 + 2), "no " * (i % 5 + 1)) for i in range(40)]
    rows = [Preference(Prompt(f"prompt {i}"), *pair, annotator="A") for i, pair in enumerate(pairs)]
    return assess(rows, rule).to_dict()


def put(folder: Path, report: Any) -> Path:
    (folder / "readiness.json").write_text(report if isinstance(report, str) else json.dumps(report))
    return folder


def test_a_whole_report_reads_back_as_it_was_written(report: dict[str, Any], tmp_path: Path) -> None:
    found = stored_readiness(put(tmp_path, report))
    assert found.problem is None
    assert found.report == report


def test_where_there_is_no_report_nothing_is_wrong(tmp_path: Path) -> None:
    found = stored_readiness(tmp_path)
    assert (found.report, found.problem) == (None, None)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "[" * 100_000, "\x00", '{"a": NaN'])
def test_a_file_that_is_no_report_is_a_sentence(text: str, tmp_path: Path) -> None:
    found = stored_readiness(put(tmp_path, text))
    assert found.report is None
    assert found.problem is not None
    assert found.problem.startswith("readiness.json")
    assert len(found.problem) < 300


def test_a_damaged_part_is_a_gap_and_the_rest_is_there(report: dict[str, Any], tmp_path: Path) -> None:
    damaged = copy.deepcopy(report)
    damaged["accuracy"]["mean"] = "high"
    damaged["verdict"] = "<script>"
    damaged["mistakes"] = {"a": 1}
    del damaged["calibration"]
    damaged["length"]["longer_wins"] = 1
    found = stored_readiness(put(tmp_path, damaged))
    assert found.report is not None
    assert found.report["accuracy"] == {**report["accuracy"], "mean": None}
    assert [found.report[name] for name in ("verdict", "mistakes", "calibration")] == [None, None, None]
    assert found.report["edits"] == report["edits"]
    assert found.problem is not None
    for name in ("verdict", "accuracy.mean", "calibration", "length.longer_wins"):
        assert name in found.problem


def test_texts_and_lists_without_end_are_cut(report: dict[str, Any], tmp_path: Path) -> None:
    large = copy.deepcopy(report)
    long = {"status": "weak", "about": "rows", "text": "x" * 100_000}
    large["reasons"] = [long, *[{**long, "text": "short"}] * 3_000]
    large["rows"] = {f"kind {i}": i for i in range(5_000)}
    found = stored_readiness(put(tmp_path, large)).report
    assert found is not None
    assert len(found["reasons"]) == len(found["rows"]) == 1_000
    assert len(found["reasons"][0]["text"]) == LONGEST_TEXT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(part=st.sampled_from(["verdict", "reasons", "rows", "accuracy", "calibration", "edits", "mistakes"]), value=JSON)
def test_no_value_in_any_place_is_an_error(
    report: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, part: str, value: Any
) -> None:
    folder = put(tmp_path_factory.mktemp("any"), {**report, part: value})
    found = stored_readiness(folder)
    assert found.report is not None
    json.dumps(found.report, allow_nan=False)
