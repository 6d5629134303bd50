"""Every question of docs/asking-tables.md is answered, and pandas and DuckDB give the same answer."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from ppolm.embedded import EXAMPLE_RUN
from scripts import columns_page
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "asking-tables.md").read_text(encoding="utf-8")
KEYS = ("sequence", "prompt_idx", "step", "action_id", "prompt")
PREPARED, *QUESTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)


def block(text: str, language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page's first block defines, for the example run."""
    code, names = block(PREPARED, "python"), dict[str, Any]()
    assert '"runs/my-run/table"' in code
    exec(code.replace('"runs/my-run/table"', repr(str(EXAMPLE_RUN / "table"))), names)
    assert names["all_steps"].ppo_step.nunique() == 4
    return names


def test_there_are_ten_questions() -> None:
    assert [question.split(".")[0] for question in QUESTIONS] == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda text: text.split("\n")[0][:40])
def test_pandas_and_duckdb_give_the_same_answer(names: dict[str, Any], question: str) -> None:
    line = block(question, "python")
    assert len(line.splitlines()) == 1
    ours = eval(line, names)
    t, all_steps = names["t"], names["all_steps"]  # noqa: F841 (DuckDB reads them by name)
    theirs = duckdb.sql(block(question, "sql")).df()
    assert len(theirs) == (1 if np.isscalar(ours) else len(ours)) > 0
    if np.isscalar(ours):
        assert theirs.iloc[0, 0] == pytest.approx(ours, abs=1e-5)
        return
    frame = ours.to_frame() if isinstance(ours, pd.Series) else ours
    if "change" in theirs.columns:
        frame = frame.set_axis(["change"], axis=1)
    shared = [name for name in frame.columns.intersection(theirs.columns) if name not in KEYS]
    assert shared
    for name in shared:  # rows with equal numbers may stand in another order
        if pd.api.types.is_numeric_dtype(frame[name]):
            one, other = (np.sort(table[name].to_numpy(dtype=float)) for table in (frame, theirs))
            assert one == pytest.approx(other, abs=1e-5, nan_ok=True), name
        else:
            assert sorted(frame[name]) == sorted(theirs[name]), name


def test_the_page_of_columns_is_that_of_the_dictionary() -> None:
    assert columns_page.PAGE.read_text(encoding="utf-8") == columns_page.page(), "run python -m scripts.columns_page"
