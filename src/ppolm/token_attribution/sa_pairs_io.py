"""The table as Arrow, Parquet and pandas, without loss: a table that is read back trains like the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import torch

from ppolm.errors import DataError
from ppolm.names import TABLE_META
from ppolm.token_attribution.columns import MEANINGS
from ppolm.token_attribution.extractor import action_texts
from ppolm.token_attribution.sa_pair_builder import INTEGER
from ppolm.token_attribution.sa_pairs import SAPairs

if TYPE_CHECKING:
    import pandas as pd

    from ppolm.rollout.sampling_base import Tokenizer


def to_arrow(pairs: SAPairs, **notes: Any) -> pa.Table:
    """One row per token: ``sequence``, all numbers, ``action`` and ``prompt`` as text.

    Metadata: ids, ``notes``, and what each column means (of a field, too, as ``description``).
    """
    sequence = torch.repeat_interleave(torch.arange(pairs.num_sequences), pairs.lengths)
    columns: dict[str, Any] = {"sequence": sequence.numpy()}
    columns |= {name: values.numpy() for name, values in pairs.columns.items()} | dict(pairs.literal)
    if pairs.tokenizer and "action" not in columns:
        columns["action"] = action_texts(pairs)
    prompts = [list(ids) for ids in pairs.prompts]
    texts = [pairs.tokenizer.decode_prompt(ids) for ids in prompts] if pairs.tokenizer else []
    if texts and "prompt" not in columns:
        owners = pa.array(pairs.columns["prompt_idx"].numpy(), type=pa.int32())
        columns["prompt"] = pa.DictionaryArray.from_arrays(owners, pa.array(texts))
    meta = {"prompt_ids": prompts, "prompt_texts": texts, "ended": pairs.ended.tolist(), "notes": notes}
    meta["columns"] = {name: MEANINGS[name].text for name in columns if name in MEANINGS}
    table = pa.table(columns)
    described = pa.schema([_described(field) for field in table.schema], metadata={TABLE_META: json.dumps(meta)})
    return table.cast(described)


def _described(field: pa.Field) -> pa.Field:
    """A column with its meaning, which Arrow keeps beside its type."""
    meaning = MEANINGS.get(field.name)
    return field if meaning is None else field.with_metadata({"description": meaning.text})


def from_arrow(table: pa.Table, tokenizer: Tokenizer | None = None) -> SAPairs:
    """The table that ``to_arrow`` was given; texts are decoded if a tokenizer is given, else as stored."""
    meta = read_notes(table)
    columns, literal = {}, {}
    for name in table.column_names:
        values = table.column(name)
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            columns[name] = torch.tensor(
                values.to_numpy(), dtype=torch.long if name in (*INTEGER, "sequence") else None
            )
        elif not (name == "prompt" and meta["prompt_texts"]) and (name != "action" or tokenizer is None):
            literal[name] = values.to_pylist()
    lengths = torch.bincount(columns.pop("sequence"), minlength=len(meta["ended"]))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    ended = torch.tensor(meta["ended"], dtype=torch.bool)
    return SAPairs(columns, offsets, ended, meta["prompt_ids"], tokenizer, literal)


def read_notes(table: pa.Table) -> dict[str, Any]:
    """The metadata that ``to_arrow`` put beside the rows."""
    meta = (table.schema.metadata or {}).get(TABLE_META)
    if meta is None:
        raise DataError("This Arrow table was not written by ppolm: it has no 'ppolm' metadata.")
    return dict(json.loads(meta))


def to_parquet(pairs: SAPairs, path: str | Path, **notes: Any) -> None:
    """Write the whole table."""
    parquet.write_table(to_arrow(pairs, **notes), path, compression="zstd")


def from_parquet(path: str | Path, tokenizer: Tokenizer | None = None) -> SAPairs:
    """Read a table written by ``to_parquet``."""
    try:
        return from_arrow(parquet.read_table(path), tokenizer)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a readable table: {error}") from error


def to_pandas(pairs: SAPairs) -> pd.DataFrame:
    """A DataFrame; it keeps the metadata, so ``from_pandas`` gives the table back."""
    table = to_arrow(pairs)
    frame = table.to_pandas()
    frame.attrs[TABLE_META.decode()] = (table.schema.metadata or {})[TABLE_META].decode()
    return frame


def from_pandas(frame: pd.DataFrame, tokenizer: Tokenizer | None = None) -> SAPairs:
    """The table that ``to_pandas`` was given."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    meta = frame.attrs.get(TABLE_META.decode())
    return from_arrow(table.replace_schema_metadata({TABLE_META: meta} if meta else None), tokenizer)
