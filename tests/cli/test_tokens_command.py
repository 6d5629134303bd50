"""``ppolm tokens`` and ``ppolm explain``: any token of a stored step is found, shown whole, and explained."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
import torch

from ppolm.cli.main import run as ppolm
from ppolm.embedded import EXAMPLE_RUN
from tests.cli.failing import fails
from tests.made_runs import HOSTILE
from tests.studio.stored_tables import WORDS, make_table, store

RUN = str(EXAMPLE_RUN)
WHERE = {"sequence", "token", "tokens", "text", "before", "after"}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert ppolm(list(words)) == 0
    return capsys.readouterr().out


def tokens(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed(capsys, "tokens", *words, "--json").splitlines()]


@pytest.fixture(scope="module")
def frame() -> Any:
    """The example's last stored step as pandas reads it."""
    return parquet.read_table(EXAMPLE_RUN / "table" / "step-000030.parquet").to_pandas()


@pytest.mark.parametrize("column", ["kl", "advantage", "step"])
def test_tokens_are_sorted_by_any_column(capsys: pytest.CaptureFixture[str], frame: Any, column: str) -> None:
    name = {"step": "token"}.get(column, column)
    largest = [row[name] for row in tokens(capsys, RUN, "--sort-by", column, "--top", "9")]
    assert largest == frame[column].nlargest(9).tolist()
    smallest = [row[name] for row in tokens(capsys, RUN, "--sort-by", column, "--top", "9", "--ascending")]
    assert smallest == frame[column].nsmallest(9).tolist()
    sizes = [abs(row[name]) for row in tokens(capsys, RUN, "--sort-by", column, "--top", "9", "--absolute")]
    assert sizes == frame[column].abs().nlargest(9).tolist()


def test_every_column_of_a_token_is_shown_with_its_context(capsys: pytest.CaptureFixture[str], frame: Any) -> None:
    found = tokens(capsys, RUN, "--step", "30", "--sequence", "3", "--top", "10000")
    own = frame[frame.sequence == 3]
    assert [row["text"] for row in found] == own.action.tolist()
    for row, (_, stored) in zip(found, own.iterrows(), strict=True):
        numbers = {name: value for name, value in row.items() if name not in WHERE}
        assert numbers == {name: stored[name] for name in numbers}
        assert set(numbers) == set(frame.columns) - {"sequence", "step", "action", "prompt"}
        whole = "".join(own.action)
        around = row["before"] + row["text"] + row["after"]
        assert around == whole if row["token"] else around.endswith(whole), "the prompt stands before the first token"


def test_the_text_form_has_the_same_numbers_and_no_line_is_too_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppolm.cli.tokens_command.terminal_width", lambda: 60)
    (row,) = tokens(capsys, RUN, "--sort-by", "kl", "--top", "1")
    text = printed(capsys, "tokens", RUN, "--sort-by", "kl", "--top", "1")
    assert text.startswith("Step 30: 1 of 697 tokens, sorted by kl, largest first\n")
    assert f"«{row['text']}»" in text
    for name, value in row.items():
        if name not in WHERE:
            assert f"{name} {value:.4g}" in text or f"{name} {value}" in text
    assert max(map(len, text.splitlines())) <= 60


def test_only_tokens_with_a_text(capsys: pytest.CaptureFixture[str], frame: Any) -> None:
    found = tokens(capsys, RUN, "--find", "lim", "--top", "10000")
    assert len(found) == frame.action.str.contains("lim").sum() > 0


def test_missing_numbers_come_last_and_hostile_text_stays_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = torch.tensor([0.5, math.nan, -3.0, 1.0])
    table = make_table([[1, 2], [3, 0]], [0, 1], [[1], [2]], [*WORDS[:2], HOSTILE, *WORDS[3:]], value=values)
    store(table, tmp_path / "run", 1)
    for direction in ([], ["--ascending"], ["--absolute"]):
        assert tokens(capsys, str(tmp_path / "run"), "--sort-by", "value", *direction)[-1]["value"] is None
    text = printed(capsys, "tokens", str(tmp_path / "run"), "--sort-by", "value")
    assert text.isprintable() or text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--sort-by", "kll"), "The table has no column 'kll'. Did you mean kl?"),
        (("--sort-by", "action"), "The table has no column 'action'."),
        (("--step", "7"), "The run has no token table of step 7. It has those of step 1, 10, 20, 30."),
        (("--sequence", "99"), "sequence is 99, but the step has 32: give 0 to 31."),
        (("--top", "0"), "top is 0, expected 1 to 10,000."),
    ],
)
def test_what_is_not_there_is_said(capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str) -> None:
    assert said in fails(capsys, "tokens", RUN, *flags)


@pytest.mark.parametrize("command", ["tokens", "explain"])
def test_a_folder_without_tables_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    place = ("--sequence", "0", "--token", "0") if command == "explain" else ()
    assert "does not exist" in fails(capsys, command, str(tmp_path / "nothing"), *place)
    assert "is not a run folder" in fails(capsys, command, str(tmp_path), *place)
    make = store(make_table([[1]], [0], [[1]], WORDS), tmp_path / "run", 1)
    make.unlink()
    assert "has no token table yet" in fails(capsys, command, str(tmp_path / "run"), *place)


# ---- explain ---------------------------------------------------------------------------------------------------------


def test_every_advantage_of_a_real_run_is_derived_from_its_terms(
    capsys: pytest.CaptureFixture[str], frame: Any
) -> None:
    own = frame[frame.sequence == 3]
    for token in range(len(own)):
        flags = ("--step", "30", "--sequence", "3", "--token", str(token))
        found = json.loads(printed(capsys, "explain", RUN, *flags, "--json"))
        assert found["stored_advantage"] == own.advantage.iloc[token]
        total = sum(one["amount"] for one in found["contributions"]) + found["rest"]
        assert total == pytest.approx(found["raw_advantage"], abs=1e-5)
        white = found["advantage_whitening"]
        derived = (total - white["mean"]) / white["deviation"]
        assert derived == pytest.approx(found["stored_advantage"], abs=1e-4)
        text = printed(capsys, "explain", RUN, *flags)
        assert text.rstrip().endswith(": the same.")
        assert all(f"{one['amount']:+.5f}" in text for one in found["contributions"])


def test_an_advantage_that_the_settings_do_not_explain_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = make_table([[1, 2, 0], [3, 0]], [0, 1], [[1], [2]], WORDS)
    shifted = table.with_columns(advantage=table.column("advantage") + torch.tensor([0.0, 0.5, 0, 0, 0]))
    store(shifted, tmp_path / "run", 1)
    right = printed(capsys, "explain", str(tmp_path / "run"), "--sequence", "0", "--token", "0")
    wrong = printed(capsys, "explain", str(tmp_path / "run"), "--sequence", "0", "--token", "1")
    assert right.rstrip().endswith("the same.")
    assert "NOT the same; they differ by +0.500000." in wrong


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "Which token? Give --sequence and --token"),
        (("--sequence", "3"), "Which token?"),
        (("--sequence", "3", "--token", "99"), "token is 99, but response 3 has 23: give 0 to 22."),
        (("--sequence", "-1", "--token", "0"), "sequence is -1, but the step has 32"),
    ],
)
def test_a_token_that_is_not_there_is_said(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    assert said in fails(capsys, "explain", RUN, *flags)
