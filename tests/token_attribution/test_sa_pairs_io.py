"""The table as Arrow, Parquet and pandas, whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch

from ppolm.advantage import GAEAdvantage, ReturnCalculator, TDError
from ppolm.embedded import EXAMPLE_RUN
from ppolm.errors import DataError
from ppolm.ppo_trainer.generator import SequenceGenerator
from ppolm.ppo_trainer.value_adder import ValueAdder
from ppolm.reward_kl import KLDivergence, RewardAdjuster, add_kl_to_sa_pairs, adjust_rewards_with_kl
from ppolm.rollout.sampling_base import Tokenizer
from ppolm.token_attribution import SAPairs, from_dicts
from ppolm.token_attribution.columns import ADDED_BY, MEANINGS
from ppolm.token_attribution.sa_pairs_io import (
    from_arrow,
    from_pandas,
    from_parquet,
    read_notes,
    to_arrow,
    to_pandas,
    to_parquet,
)
from tests.conftest import PROMPTS
from tests.table_cases import DOCUMENT_PAIRS, assert_same_table

# ---- Arrow, Parquet, pandas -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full(pairs: SAPairs) -> SAPairs:
    """A table with columns of many stages, and numbers that are hard to write down."""
    table = adjust_rewards_with_kl(add_kl_to_sa_pairs(pairs), [1 / 3] * pairs.num_sequences, 0.1)
    odd = torch.randn(len(pairs), generator=torch.Generator().manual_seed(0))
    odd[:4] = torch.tensor([float("inf"), -0.0, 1e-45, 3.4e38])
    return table.with_columns(value=odd)


def through_arrow(pairs: SAPairs, tokenizer: Tokenizer | None, _folder: Path) -> SAPairs:
    return from_arrow(to_arrow(pairs), tokenizer)


def through_parquet(pairs: SAPairs, tokenizer: Tokenizer | None, folder: Path) -> SAPairs:
    to_parquet(pairs, folder / "table.parquet")
    return from_parquet(folder / "table.parquet", tokenizer)


def through_pandas(pairs: SAPairs, tokenizer: Tokenizer | None, _folder: Path) -> SAPairs:
    return from_pandas(to_pandas(pairs), tokenizer)


Journey = Callable[[SAPairs, "Tokenizer | None", Path], SAPairs]
journeys = pytest.mark.parametrize("journey", [through_arrow, through_parquet, through_pandas])


@journeys
def test_table_comes_back_exactly(full: SAPairs, journey: Journey, tmp_path: Path) -> None:
    back = journey(full, full.tokenizer, tmp_path)
    assert_same_table(full, back)
    assert [row["state"] for row in back] == [row["state"] for row in full]
    assert [row["action"] for row in back] == [row["action"] for row in full]


@journeys
def test_table_without_tokenizer_keeps_the_text_of_actions(full: SAPairs, journey: Journey, tmp_path: Path) -> None:
    back = journey(full, None, tmp_path)
    assert_same_table(full, back)
    assert [row["action"] for row in back] == [row["action"] for row in full]


@journeys
def test_pairs_of_the_documents_come_back_with_their_text(journey: Journey, tmp_path: Path) -> None:
    table = from_dicts(DOCUMENT_PAIRS)
    back = journey(table, None, tmp_path)
    assert_same_table(table, back)
    assert [(row["state"], row["action"]) for row in back] == [
        (pair["state"], pair["action"]) for pair in DOCUMENT_PAIRS
    ]


@journeys
def test_not_a_number_survives(small: SAPairs, journey: Journey, tmp_path: Path) -> None:
    table = small.with_columns(value=torch.tensor([1.0, float("nan"), 2.0, float("nan"), 3.0]))
    back = journey(table, None, tmp_path).column("value")
    assert back.dtype == torch.float32
    assert torch.equal(back.isnan(), table.column("value").isnan())


def test_parquet_is_readable_by_anybody(full: SAPairs, tmp_path: Path) -> None:
    to_parquet(full, tmp_path / "table.parquet")
    table = parquet.read_table(tmp_path / "table.parquet").to_pydict()
    assert table["sequence"] == [i for i, length in enumerate(full.lengths.tolist()) for _ in range(length)]
    assert table["logprob_policy"] == full.column("logprob_policy").tolist()
    assert table["action"] == [row["action"] for row in full]


def test_notes_and_prompt_texts_travel_with_the_table(full: SAPairs, tmp_path: Path) -> None:
    to_parquet(full, tmp_path / "table.parquet", step=7)
    meta = read_notes(parquet.read_table(tmp_path / "table.parquet"))
    assert meta["notes"] == {"step": 7}
    assert meta["prompt_texts"] == PROMPTS


def test_table_of_another_program_is_refused() -> None:
    with pytest.raises(DataError, match="not written by ppolm"):
        from_arrow(pa.table({"sequence": [0]}))


def test_damaged_or_missing_parquet_is_an_error_that_names_the_file(full: SAPairs, tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    with pytest.raises(DataError, match=r"table\.parquet is not a readable table"):
        from_parquet(path)
    to_parquet(full, path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"table\.parquet is not a readable table"):
        from_parquet(path)


# ---- what the columns mean -------------------------------------------------------------------------------------------


def test_a_stored_table_says_what_each_of_its_columns_means() -> None:
    for path in sorted((EXAMPLE_RUN / "table").iterdir()):
        names = [name for name in parquet.read_schema(path).names if name not in MEANINGS]
        assert not names, "columns without an entry in token_attribution/columns.py"


def test_the_meanings_stand_in_the_file(full: SAPairs, tmp_path: Path) -> None:
    to_parquet(full, tmp_path / "table.parquet")
    schema = parquet.read_schema(tmp_path / "table.parquet")
    assert json.loads(schema.metadata[b"ppolm"])["columns"]["kl"] == MEANINGS["kl"].text
    assert schema.field("kl").metadata[b"description"].decode() == MEANINGS["kl"].text


def test_the_method_that_adds_a_column_exists() -> None:
    """The error for a missing column names it."""
    stages = [SequenceGenerator, KLDivergence, RewardAdjuster, ValueAdder, TDError, GAEAdvantage, ReturnCalculator]
    for column, method in ADDED_BY.items():
        assert any(hasattr(stage, method) for stage in stages), column
