"""Stored token tables: found, read once, at hand afterwards; damaged ones are an error that says so."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch

from ppolm.errors import RunFolderError
from ppolm.studio.response_view import response_view
from ppolm.studio.step_overview import column_ranges, overview, page_rows, take_me_to
from ppolm.studio.token_pieces import TokenPieces
from ppolm.studio.token_tables import TokenTables, logged_steps
from ppolm.token_attribution import SAPairs
from tests.studio.stored_tables import large_table, make_table, store

WORDS = ["<|end|>", " good", " bad", " cats", " sleep"]


def small() -> SAPairs:
    """Three responses to two prompts."""
    return make_table([[1, 3, 4, 0], [2, 3], [4]], [0, 0, 1], [[3, 4], [1]], WORDS, ended=[True, False, False])


def test_steps_are_those_with_a_table_and_strangers_are_passed_over(tmp_path: Path) -> None:
    assert logged_steps(tmp_path) == []
    for step in (20, 1, 1_000_000):
        store(small(), tmp_path, step)
    for name in (".step-000003.parquet.12-0a1b2c3d.tmp", "step-3.parquet", "notes.txt", "step-000004.parquet.bak"):
        (tmp_path / "table" / name).write_bytes(b"")
    assert logged_steps(tmp_path) == [1, 20, 1_000_000]


def test_what_is_read_is_what_was_stored(tmp_path: Path) -> None:
    pairs = small()
    store(pairs, tmp_path, 3)
    table = TokenTables().load(tmp_path, 3)
    assert table.offsets.tolist() == [0, 4, 6, 7]
    assert table.owners.tolist() == [0, 0, 1]
    assert table.ended.tolist() == [True, False, False]
    assert table.notes == {"step": 3, "kl_coef": 0.1, "reward_coef": 0.1}
    assert [table.response_text(number) for number in range(3)] == [" good cats sleep<|end|>", " bad cats", " sleep"]
    assert [table.prompt_text(number) for number in range(3)] == [" cats sleep", " cats sleep", " good"]
    for name in table.numeric:
        assert torch.equal(torch.from_numpy(table.columns[name].copy()), pairs.column(name)), name
    assert "advantage" in table.numeric
    assert "action_id" not in table.numeric


def test_a_table_is_read_once_until_its_file_changes(tmp_path: Path) -> None:
    path, tables = store(small(), tmp_path, 1), TokenTables()
    first = tables.load(tmp_path, 1)
    assert tables.load(tmp_path, 1) is first
    store(make_table([[1]], [0], [[2]], WORDS), tmp_path, 1)
    os.utime(path, ns=(1, 1))
    assert tables.load(tmp_path, 1).num_responses == 1


def test_only_some_tables_stay_at_hand_and_the_oldest_leave_first(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        store(small(), tmp_path, step)
    tables = TokenTables(most_tables=2)
    one, two = tables.load(tmp_path, 1), tables.load(tmp_path, 2)
    assert tables.load(tmp_path, 1) is one
    tables.load(tmp_path, 3)
    assert tables.load(tmp_path, 1) is one
    assert tables.load(tmp_path, 2) is not two
    thrifty = TokenTables(most_bytes=1)
    kept = thrifty.load(tmp_path, 1)
    assert thrifty.load(tmp_path, 1) is kept, "the newest stays, however large"
    thrifty.load(tmp_path, 2)
    assert thrifty.load(tmp_path, 1) is not kept


def test_a_step_without_a_table_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="none at all yet"):
        TokenTables().load(tmp_path, 1)
    store(small(), tmp_path, 5)
    with pytest.raises(RunFolderError, match=r"no token table of step 7. It has those of step 5\."):
        TokenTables().load(tmp_path, 7)


def test_damaged_files_are_an_error_and_never_a_crash(tmp_path: Path) -> None:
    path = store(large_table(2000), tmp_path, 1)
    whole = path.read_bytes()
    middle = bytearray(whole)
    middle[200:1200] = b"\xff" * 1000
    for damaged in (b"", b"PAR1", whole[: len(whole) // 2], whole[:-1], bytes(middle), b"\0" * len(whole)):
        path.write_bytes(damaged)
        with pytest.raises(RunFolderError, match=r"step-000001\.parquet cannot be read"):
            TokenTables().load(tmp_path, 1)
    path.write_bytes(whole)
    assert TokenTables().load(tmp_path, 1).num_responses == 20


@pytest.mark.parametrize(
    ("columns", "meta"),
    [
        ({"sequence": [0]}, None),
        ({"sequence": [0]}, "not json"),
        ({"sequence": [0], "prompt_idx": [0]}, "{}"),
        ({"sequence": [1, 0], "prompt_idx": [0, 0]}, '{"ended": [true, true]}'),
        ({"sequence": [0, 10**12], "prompt_idx": [0, 0]}, '{"ended": [true, true]}'),
        ({"sequence": [-1, 0], "prompt_idx": [0, 0]}, '{"ended": [true, true]}'),
        ({"sequence": pa.array([], pa.int64()), "prompt_idx": pa.array([], pa.int64())}, '{"ended": []}'),
        ({"sequence": ["a"], "prompt_idx": [0]}, '{"ended": [true]}'),
    ],
)
def test_parquet_that_is_no_token_table_is_refused(
    tmp_path: Path, columns: dict[str, object], meta: str | None
) -> None:
    (tmp_path / "table").mkdir()
    table = pa.table(columns).replace_schema_metadata({b"ppolm": meta} if meta else None)
    parquet.write_table(table, tmp_path / "table" / "step-000001.parquet")
    with pytest.raises(RunFolderError, match="cannot be read"):
        TokenTables().load(tmp_path, 1)


def test_a_step_of_100000_tokens_is_read_once_and_seen_a_response_at_a_time(tmp_path: Path) -> None:
    store(large_table(100_000), tmp_path, 1)
    tables = TokenTables()
    table = tables.load(tmp_path, 1)
    found = overview(table)
    rows, ranges, places = (
        page_rows(table, found, found.length[:50] * 0),
        column_ranges(table),
        take_me_to(table, found),
    )
    assert len(rows) == 50
    assert ranges["advantage"]["missing"] == 0
    assert places["largest KL"] is not None
    assert tables.load(tmp_path, 1) is table
    view = response_view(table, 500, TokenPieces())
    assert len(view["ids"]) == 100
