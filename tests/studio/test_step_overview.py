"""What a page shows of a step: a row per response, the extremes, the ranges; gaps are gaps."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.runs.held_out_samples import HeldOutSamples
from ppolm.studio.prompt_history import PromptHistory, key_of
from ppolm.studio.response_view import response_view
from ppolm.studio.step_overview import Filters, chosen, column_ranges, overview, page_rows, take_me_to
from ppolm.studio.step_table import StepTable
from ppolm.studio.token_pieces import TokenPieces, find_pieces
from ppolm.studio.token_tables import TokenTables
from tests.studio.stored_tables import make_table, store

WORDS = ["<|end|>", " good", " bad", " cats", " Sleep"]


@pytest.fixture
def table(tmp_path: Path) -> StepTable:
    """Three responses to two prompts, of 4, 2 and 1 tokens."""
    columns = {
        "logprob_policy": torch.tensor([-1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0]),
        "logprob_ref": torch.tensor([-1.5, -1.0, -1.0, -1.0, -4.0, -1.0, -0.5]),
        "score": torch.tensor([0.0, 0.0, 0.0, 2.0, 0.0, -3.0, 1.0]),
        "value": torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0]),
    }
    pairs = make_table([[1, 3, 4, 0], [2, 3], [4]], [0, 0, 1], [[3, 4], [1]], WORDS, [True, False, False], **columns)
    store(pairs, tmp_path, 1)
    return TokenTables().load(tmp_path, 1)


def test_the_row_of_a_response_adds_up_its_tokens(table: StepTable) -> None:
    found = overview(table)
    assert found.score.tolist() == [2.0, -3.0, 1.0]
    assert found.kl.tolist() == pytest.approx([0.5, 3.0, -0.5])
    assert found.length.tolist() == [4, 2, 1]
    advantages = torch.tensor(table.columns["advantage"].copy())
    assert found.abs_advantage[0] == pytest.approx(float(advantages[:4].abs().mean()))
    errors = abs(table.columns["value"] - table.columns["return"])
    assert found.value_error.tolist() == pytest.approx([errors[:4].max(), errors[4:6].max(), errors[6]])
    rows = page_rows(table, found, chosen(table, found, Filters()))
    assert [(row["sequence"], row["prompt"], row["ended"], row["preview"]) for row in rows] == [
        (0, 0, True, " good cats Sleep<|end|>"),
        (1, 0, False, " bad cats"),
        (2, 1, False, " Sleep"),
    ]
    json.dumps(rows, allow_nan=False)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(), [0, 1, 2]),
        (Filters(descending=True), [2, 1, 0]),
        (Filters(sort="score"), [1, 2, 0]),
        (Filters(sort="score", descending=True), [0, 2, 1]),
        (Filters(sort="length"), [2, 1, 0]),
        (Filters(ended=False), [1, 2]),
        (Filters(prompt=0), [0, 1]),
        (Filters(find="BAD C"), [1]),
        (Filters(find="good"), [0, 2]),
        (Filters(find="<script>"), []),
    ],
)
def test_lists_are_filtered_and_sorted(table: StepTable, filters: Filters, expected: list[int]) -> None:
    assert chosen(table, overview(table), filters).tolist() == expected


def test_extremes_lead_to_a_response_and_a_token(table: StepTable) -> None:
    places = take_me_to(table, overview(table))
    assert places["largest KL"] == {"sequence": 1, "token": 0, "value": 3.0}
    assert places["best score"] == {"sequence": 0, "token": 3, "value": 2.0}
    assert places["worst score"] == {"sequence": 1, "token": 1, "value": -3.0}
    assert places["longest"] == {"sequence": 0, "token": 3, "value": 4.0}
    assert places["not ended"] == {"sequence": 1, "token": 1, "value": 2.0}, "the first of the two"
    worst = places["worst value error"]
    assert worst is not None
    assert (worst["sequence"], worst["token"]) == (2, 0)


def test_ranges_are_robust_and_know_which_sign_matters(table: StepTable) -> None:
    ranges = column_ranges(table)
    assert ranges["kl"]["diverging"]
    assert not ranges["value"]["diverging"]
    assert (ranges["value"]["min"], ranges["value"]["max"]) == (0.0, 9.0)
    assert ranges["value"]["low"] == 0.0
    assert ranges["value"]["high"] < 9.0


def test_missing_numbers_and_columns_are_gaps(tmp_path: Path) -> None:
    pairs = make_table([[1, 3], [2]], [0, 0], [[3]], WORDS, extra=torch.tensor([math.nan, math.inf, 1.0]))
    columns = {name: values for name, values in pairs.columns.items() if name not in ("value", "score")}
    store(pairs.__class__(columns, pairs.offsets, pairs.ended, pairs.prompts, pairs.tokenizer), tmp_path, 1)
    table = TokenTables().load(tmp_path, 1)
    found = overview(table)
    rows = page_rows(table, found, chosen(table, found, Filters(sort="value_error", descending=True)))
    assert [row["value_error"] for row in rows] == [None, None]
    places = take_me_to(table, found)
    assert places["worst value error"] is None
    assert places["best score"] is None
    assert places["not ended"] is None
    assert places["longest"] is not None
    assert column_ranges(table)["extra"] == {"diverging": True, "missing": 2, "min": 1, "max": 1, "low": 1, "high": 1}
    view = response_view(table, 0, TokenPieces())
    assert view["columns"]["extra"] == [None, None]
    json.dumps([rows, places, column_ranges(table), view], allow_nan=False)


def test_a_response_has_a_cell_for_every_token_and_shows_what_ended_it(table: StepTable) -> None:
    view = response_view(table, 0, TokenPieces())
    assert view["texts"] == [" good", " cats", " Sleep", "<|end|>"]
    assert view["ids"] == [1, 3, 4, 0]
    assert view["bytes"][0] == b" good".hex()
    assert view["special"] == [3]
    assert view["prompt_text"] == " cats Sleep"
    assert view["samples"] == [0, 1]
    assert view["columns"]["advantage"] == pytest.approx(table.columns["advantage"][:4].tolist(), rel=1e-6)


def test_bytes_of_tokens_are_exact_even_for_a_part_of_a_character(model_folder: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    ids = tokenizer.encode(" naïve €\n\x00").ids
    pieces = find_pieces(str(model_folder)).all_of(ids, ["\ufffd"] * len(ids))
    contents = [piece.content for piece in pieces]
    assert None not in contents
    assert b"".join(content or b"" for content in contents) == " naïve €\n\x00".encode()
    assert any(content and b"\xe2" in content and "€".encode() not in content for content in contents)
    embedded = find_pieces("embedded")
    assert any(embedded.of(token, "").special for token in range(10))


def test_without_a_tokenizer_a_broken_text_has_no_bytes(tmp_path: Path) -> None:
    for name in (str(tmp_path), "no/such-model", "../../etc", "a" * 5000, "\0"):
        pieces = find_pieces(name)
        assert pieces.of(5, "\ufffd").content is None
        assert pieces.of(5, " ok").content == b" ok"
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    assert find_pieces(str(tmp_path)).of(5, " ok").content == b" ok"


def test_the_same_prompt_is_found_in_other_steps(tmp_path: Path) -> None:
    store(make_table([[1], [2]], [0, 1], [[3, 4], [1]], WORDS), tmp_path, 1)
    store(make_table([[1]], [0], [[1]], WORDS), tmp_path, 2)
    store(make_table([[1], [2]], [0, 1], [[1, 1], [3, 4]], WORDS), tmp_path, 3)
    (tmp_path / "table" / "step-000004.parquet").write_bytes(b"PAR1 half")
    history, table = PromptHistory(), TokenTables().load(tmp_path, 1)
    assert history.steps_with(tmp_path, key_of(table, 0)) == [(1, 0), (3, 1)]
    assert history.steps_with(tmp_path, key_of(table, 1)) == [(1, 1), (2, 0)]
    assert history.steps_with(tmp_path, "unknown") == []


def line(step: int, number: int, reward: Any, kind: str = "eval") -> str:
    row = {"kind": kind, "step": step, "sequence": number, "prompt": "p", "response": f"r{number}", "reward": reward}
    return json.dumps(row) + "\n"


def test_held_out_samples_are_read_on_while_the_file_grows(tmp_path: Path) -> None:
    samples, path = HeldOutSamples(tmp_path), tmp_path / "samples.jsonl"
    assert samples.steps() == []
    path.write_text(line(0, 0, 1.0) + line(0, 1, [0.5, 0.25]) + line(1, 0, 5.0, "train") + '{"kind": "eval", "step')
    assert samples.steps() == [0]
    assert samples.rewards(0) == {0: 1.0, 1: 0.75}
    with path.open("a") as file:
        file.write('": 3\n' + "not json\n" + '["eval"]\n' + line(10, 0, None))
    assert samples.steps() == [0, 10]
    assert samples.rewards(10) == {0: None}
    found = samples.sample(0, 1)
    assert found is not None
    assert found["response"] == "r1"
    assert samples.sample(0, 7) is None
    path.unlink()
    path.write_text(line(2, 0, 1.0))
    assert samples.steps() == [2], "a resume writes the file anew"
