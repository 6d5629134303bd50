"""The token table of a stored step as pages need it: columns as arrays, texts on demand."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as parquet

from ppolm.errors import RunFolderError
from ppolm.messages import reason
from ppolm.names import TABLE_META

KEYS = ("sequence", "prompt_idx", "step", "action_id")
"""Integer columns that locate a token."""
MOST_ROWS = 5_000_000
"""Larger tables are refused."""
Numbers = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class StepTable:
    """One row per token of a step. It is immutable, so requests can share it."""

    columns: Mapping[str, Numbers]
    """Numbers by name, each [N]."""
    offsets: Numbers
    """[S + 1]: where each response begins."""
    ended: Numbers
    """[S]: whether a response ended with EOS."""
    owners: Numbers
    """[S]: the number of each response's prompt."""
    prompt_ids: Sequence[Sequence[int]]
    prompt_texts: Sequence[str]
    actions: pa.StringArray | None
    """The text of each token, if it was stored."""
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_responses(self) -> int:
        """Responses of the step."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Numbers:
        """[S]: tokens of each response."""
        return np.diff(self.offsets)

    @property
    def numeric(self) -> list[str]:
        """Names of the columns that tokens can be coloured by, in the order in which the stages of a step add them."""
        return [name for name in self.columns if name not in KEYS]

    @property
    def nbytes(self) -> int:
        """Approximate memory."""
        texts = self.actions.nbytes if self.actions is not None else 0
        return texts + sum(column.nbytes for column in self.columns.values())

    def texts(self, start: int, end: int) -> list[str]:
        """The texts of some rows; without stored texts, their ids."""
        if self.actions is None:
            return [f"⟨{token}⟩" for token in self.columns["action_id"][start:end].tolist()]
        return [text or "" for text in self.actions.slice(start, end - start).to_pylist()]

    def response_text(self, sequence: int, most: int | None = None) -> str:
        """The text of a response, or of its first ``most`` tokens."""
        start, end = int(self.offsets[sequence]), int(self.offsets[sequence + 1])
        return "".join(self.texts(start, end if most is None else min(end, start + most)))

    def prompt_text(self, sequence: int) -> str:
        """The prompt of a response, or nothing if it was not stored."""
        owner = int(self.owners[sequence])
        return str(self.prompt_texts[owner]) if 0 <= owner < len(self.prompt_texts) else ""

    @cached_property
    def sequence_of(self) -> Numbers:
        """[N]: the response of each row."""
        return np.repeat(np.arange(self.num_responses), self.lengths)


def read_step(file: IO[bytes], path: Path) -> StepTable:
    """The table in an open Parquet file of a run. Any damage raises ``RunFolderError``."""
    try:
        opened = parquet.ParquetFile(file)
        if opened.metadata.num_rows > MOST_ROWS:
            raise ValueError(f"it has {opened.metadata.num_rows} rows, more than the {MOST_ROWS} that a page opens")
        names = [name for name in opened.schema_arrow.names if name != "prompt"]  # the prompts stand in the notes too
        return _step_of(opened.read(columns=names))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise RunFolderError(
            f"The token table {path.name} cannot be read: {reason(error)}. It is half copied, damaged, or was not "
            "written by ppolm train; the other steps of the run are not affected. Copy the file again."
        ) from error


def _step_of(table: pa.Table) -> StepTable:
    meta = json.loads((table.schema.metadata or {})[TABLE_META])
    columns: dict[str, Numbers] = {}
    for name in table.column_names:
        values = table.column(name)
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            columns[name] = values.to_numpy()
    ended = np.asarray(meta["ended"], dtype=bool)
    offsets = _offsets(columns["sequence"], len(ended))
    owners = columns["prompt_idx"][np.minimum(offsets[:-1], max(len(table) - 1, 0))]
    texts = [str(text) for text in meta.get("prompt_texts") or ()]
    notes = meta.get("notes")
    return StepTable(
        columns=columns,
        offsets=offsets,
        ended=ended,
        owners=owners,
        prompt_ids=meta.get("prompt_ids") or (),
        prompt_texts=texts,
        actions=_strings(table),
        notes=notes if isinstance(notes, dict) else {},
    )


def _offsets(sequence: Numbers, responses: int) -> Numbers:
    """[S + 1], from the response of each row."""
    if not len(sequence):
        raise ValueError("it has no rows")
    if (
        sequence.dtype.kind not in "iu"
        or (np.diff(sequence) < 0).any()
        or not 0 <= sequence[0] <= sequence[-1] < responses
    ):
        raise ValueError("its column sequence does not number the responses in order")
    return np.concatenate([[0], np.cumsum(np.bincount(sequence, minlength=responses))])


def _strings(table: pa.Table) -> pa.StringArray | None:
    if "action" not in table.column_names or not pa.types.is_string(table.schema.field("action").type):
        return None
    return table.column("action").combine_chunks()


def file_key(file: IO[bytes]) -> tuple[int, int, int]:
    """Changes whenever a file is replaced or written to."""
    found = os.fstat(file.fileno())
    return found.st_ino, found.st_mtime_ns, found.st_size
