"""SAPairs: the table of state-action pairs. One row per generated token; every stage adds columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from ppolm.batches.sequences import TokenSequences
from ppolm.token_attribution.columns import ADDED_BY
from ppolm.token_attribution.extractor import action_text, state_text
from ppolm.token_attribution.prompt_ids import PromptIds

if TYPE_CHECKING:
    from ppolm.rollout.sampling_base import Tokenizer

DERIVED = ("state", "action", "prompt_ids")
"""Keys of a row that are computed only when read."""


@dataclass(frozen=True)
class SAPairs(Sequence[Mapping[str, Any]]):
    """Flat columns over all actions of all sequences, without padding, and where each sequence begins.

    It is a sequence of mappings, as in the design documents: ``pairs[0]["action"]``. It is never modified; a stage
    returns a new table that shares the columns it did not change.
    """

    columns: Mapping[str, Tensor]
    """Numbers by name, each [N]; always ``prompt_idx``, ``step`` and ``action_id``."""
    offsets: Tensor
    """[S + 1]: sequence i is rows offsets[i] to offsets[i + 1]."""
    ended: Tensor
    """[S]: True where the sequence ended with EOS."""
    prompts: Sequence[Sequence[int]] = ()
    """Token ids of each prompt; ``prompt_idx`` points here."""
    tokenizer: Tokenizer | None = None
    """Decodes the text of states and actions."""
    literal: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Columns that are not numbers, kept as given."""

    def __post_init__(self) -> None:
        # Tables that ``replace`` makes from this one then share its prompt tensors.
        object.__setattr__(self, "prompts", PromptIds.of(self.prompts))

    # ---- a sequence of mappings ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @overload
    def __getitem__(self, index: int) -> SAPair: ...

    @overload
    def __getitem__(self, index: slice) -> list[SAPair]: ...

    def __getitem__(self, index: int | slice) -> SAPair | list[SAPair]:
        if isinstance(index, slice):
            return [SAPair(self, row) for row in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of a table with {len(self)} rows")
        return SAPair(self, index % len(self))

    def __iter__(self) -> Iterator[SAPair]:
        return (SAPair(self, row) for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"SAPairs({len(self)} rows, {self.num_sequences} sequences, columns: {', '.join(self.columns)})"

    # ---- columns --------------------------------------------------------------------------------------------------

    @property
    def num_sequences(self) -> int:
        """Sequences in the table."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """[S]: actions per sequence."""
        return self.offsets.diff()

    def column(self, name: str) -> Tensor:
        """A column by name; the error for a missing one says which stage adds it."""
        if name not in self.columns:
            stage = ADDED_BY.get(name)
            hint = f" Call {stage} first." if stage else ""
            raise KeyError(f"The table has no column {name!r}.{hint} It has: {', '.join(self.columns)}.")
        return self.columns[name]

    def with_columns(self, **columns: Tensor) -> SAPairs:
        """The same table with columns added or replaced."""
        for name, values in columns.items():
            if values.shape != (len(self),):
                raise ValueError(f"Column {name!r} has shape {tuple(values.shape)}, expected ({len(self)},).")
        return replace(self, columns={**self.columns, **columns})

    def per_sequence(self, name: str) -> list[Tensor]:
        """A column split into sequences."""
        return list(self.column(name).split(self.lengths.tolist()))

    def sequence_sums(self, name: str) -> Tensor:
        """[S]: a column summed over each sequence."""
        sequence = torch.repeat_interleave(torch.arange(self.num_sequences), self.lengths)
        return torch.zeros(self.num_sequences, dtype=torch.float64).index_add_(0, sequence, self.column(name).double())

    # ---- sequences ------------------------------------------------------------------------------------------------

    @property
    def sequences(self) -> TokenSequences:
        """Contexts and actions as token ids, for a forward pass."""
        if not self.prompts or bool((self.columns["action_id"] < 0).any()):
            raise ValueError(
                "These pairs carry text but no token ids, so no model can read them. Use generate_sequences."
            )
        prompts, owners = PromptIds.of(self.prompts), self.columns["prompt_idx"][self.offsets[:-1]].tolist()
        return TokenSequences([prompts.tensor(owner) for owner in owners], self.per_sequence("action_id"))

    def select(self, sequences: Sequence[int] | Tensor) -> SAPairs:
        """A table of the given sequences, in the given order; or of those where a mask [S] is True."""
        wanted = sequences if isinstance(sequences, Tensor) else torch.tensor(list(sequences), dtype=torch.long)
        chosen = wanted.nonzero().squeeze(-1) if wanted.dtype == torch.bool else wanted
        # Nothing here is as long as the whole table: a step calls this once per minibatch.
        starts = self.offsets[:-1][chosen]
        lengths = self.offsets[1:][chosen] - starts
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
        rows = torch.arange(int(offsets[-1])) + torch.repeat_interleave(starts - offsets[:-1], lengths)
        return replace(
            self,
            columns={name: values[rows] for name, values in self.columns.items()},
            offsets=offsets,
            ended=self.ended[chosen],
            literal={name: [values[row] for row in rows.tolist()] for name, values in self.literal.items()},
        )

    @staticmethod
    def concat(tables: Sequence[SAPairs]) -> SAPairs:
        """One table from several; prompt numbers continue from one table to the next.

        Columns that only some tables have are those of ``UNSAID``, whose absence means something, or an error.
        """
        if len(tables) == 1:
            return tables[0]
        tables = _with_all_columns(tables)
        columns = {name: torch.cat([table.columns[name] for table in tables]) for name in tables[0].columns}
        shifts = torch.tensor([0, *[len(table.prompts) for table in tables[:-1]]]).cumsum(0)
        sizes = torch.tensor([len(table) for table in tables])
        columns["prompt_idx"] = columns["prompt_idx"] + torch.repeat_interleave(shifts, sizes)
        lengths = torch.cat([table.lengths for table in tables])
        texts = [name for name in tables[0].literal if all(name in table.literal for table in tables)]
        return SAPairs(
            columns=columns,
            offsets=torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]),
            ended=torch.cat([table.ended for table in tables]),
            prompts=[ids for table in tables for ids in table.prompts],
            tokenizer=tables[0].tokenizer,
            literal={name: [value for table in tables for value in table.literal[name]] for name in texts},
        )

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain dicts, with the text of every state and action."""
        return [dict(row) for row in self]


UNSAID: Mapping[str, Callable[[SAPairs], Tensor]] = {
    # Responses of the policy itself need no weights; others may stand beside them after a change of the engine.
    "importance_weight": lambda table: torch.ones(len(table)),
}
"""What a column would be in a table that does not have it."""


def _with_all_columns(tables: Sequence[SAPairs]) -> list[SAPairs]:
    """The same tables, each with every column that any of them has."""
    names = dict.fromkeys(name for table in tables for name in table.columns)
    unknown = [name for name in names if name not in UNSAID and any(name not in table.columns for table in tables)]
    if unknown:
        raise ValueError(
            f"Only some of these tables have the column {unknown[0]!r}, so they cannot become one. Add it to all of "
            "them, or to none."
        )
    missing = [[name for name in names if name not in table.columns] for table in tables]
    return [
        table.with_columns(**{name: UNSAID[name](table) for name in lacks}) if lacks else table
        for table, lacks in zip(tables, missing, strict=True)
    ]


class SAPair(Mapping[str, Any]):
    """One row of the table; ``state`` and ``action`` are decoded when they are read."""

    __slots__ = ("row", "table")

    def __init__(self, table: SAPairs, row: int) -> None:
        self.table, self.row = table, row

    def __getitem__(self, key: str) -> Any:
        table, row = self.table, self.row
        if key in table.columns:
            return table.columns[key][row].item()
        if key in table.literal:
            return table.literal[key][row]
        if key == "prompt_ids" and table.prompts:
            return table.prompts[int(table.columns["prompt_idx"][row])]
        if key == "state" and table.tokenizer:
            return state_text(table, row)
        if key == "action" and table.tokenizer:
            return action_text(table, row)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        table = self.table
        derived = [
            key
            for key in DERIVED
            if key not in table.literal and (table.prompts if key == "prompt_ids" else table.tokenizer)
        ]
        return iter([*table.columns, *table.literal, *derived])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return repr(dict(self))
