"""Building the table: from generated responses, or from a plain list of dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ppolm.errors import DataError
from ppolm.rollout.generated_text import GeneratedText
from ppolm.token_attribution.columns import ADDED_BY
from ppolm.token_attribution.sa_pairs import SAPairs

INTEGER = ("prompt_idx", "step", "action_id")


def build_sa_pairs(texts: Sequence[GeneratedText], **columns: Tensor) -> SAPairs:
    """The table of some responses; ``columns`` are flat, with a number for each of their tokens."""
    lengths = torch.tensor([len(text.token_ids) for text in texts])
    prompts: dict[int, list[int]] = {text.prompt_idx: text.prompt_ids for text in texts}
    numbers = {owner: number for number, owner in enumerate(sorted(prompts))}
    owners = torch.tensor([numbers[text.prompt_idx] for text in texts])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    keys = {
        "prompt_idx": torch.repeat_interleave(owners, lengths),
        "step": torch.arange(int(offsets[-1])) - torch.repeat_interleave(offsets[:-1], lengths),
        "action_id": torch.tensor([token for text in texts for token in text.token_ids]),
    }
    return SAPairs(
        columns={**keys, **columns},
        offsets=offsets,
        ended=torch.tensor([text.ended for text in texts]),
        prompts=[prompts[owner] for owner in sorted(prompts)],
        tokenizer=texts[0].tokenizer,
    )


def as_sa_pairs(pairs: SAPairs | Sequence[Mapping[str, Any]]) -> SAPairs:
    """The table itself, or a table built from a plain list of dicts."""
    return pairs if isinstance(pairs, SAPairs) else from_dicts(pairs)


def from_dicts(rows: Sequence[Mapping[str, Any]]) -> SAPairs:
    """A table from dicts with at least numbers such as ``logprob_policy``, in the form of the design documents.

    A sequence begins where ``step`` is 0; without steps, where ``prompt_idx`` changes; without either, where a row's
    ``state`` is not the previous row's state plus action (the documents keep the space between them in the state, so
    whitespace is ignored).
    """
    if not rows:
        raise DataError("The list of state-action pairs is empty.")
    if not all(isinstance(row, Mapping) and row.keys() == rows[0].keys() for row in rows):
        raise DataError("State-action pairs must be dicts that all have the same keys.")
    starts = [i for i in range(len(rows)) if i == 0 or _begins(rows[i - 1], rows[i])]
    offsets = torch.tensor([*starts, len(rows)])
    sequence = torch.repeat_interleave(torch.arange(len(starts)), offsets.diff())
    columns = {
        "prompt_idx": sequence.clone(),
        "step": torch.arange(len(rows)) - offsets[sequence],
        "action_id": torch.full((len(rows),), -1),
    }
    literal: dict[str, list[Any]] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        values = [value.item() if isinstance(value, Tensor) and value.dim() == 0 else value for value in values]
        if all(isinstance(value, Real) for value in values):
            columns[name] = torch.tensor(values, dtype=torch.long if name in INTEGER else torch.float32)
        elif name in (*INTEGER, *ADDED_BY):
            bad = next(i for i, value in enumerate(values) if not isinstance(value, Real))
            raise DataError(f"State-action pair row {bad} has {name!r} {values[bad]!r:.60}, expected a number.")
        elif name != "prompt_ids":
            literal[name] = values
    _check_steps(columns["step"].tolist(), set(starts))
    prompts = _prompts(rows, columns["prompt_idx"].tolist())
    return SAPairs(columns, offsets, torch.zeros(len(starts), dtype=torch.bool), prompts, None, literal)


def _begins(before: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    if "step" in row:
        return row["step"] == 0
    if "prompt_idx" in row:
        return row["prompt_idx"] != before["prompt_idx"]
    if "state" in row and "action" in row:
        if not all(isinstance(text, str) for text in (before["state"], before["action"], row["state"])):
            raise DataError("Without step or prompt_idx, state and action must be text, to show where sequences begin.")
        together = before["state"] + before["action"]
        grown = len(row["state"]) > len(before["state"])
        return row["state"] != together and not (grown and _letters(row["state"]) == _letters(together))
    return False


def _letters(text: str) -> str:
    return "".join(text.split())


def _check_steps(steps: Sequence[int], starts: set[int]) -> None:
    """Raise if steps do not count up: it would be unclear where a sequence begins."""
    for row, (before, step) in enumerate(pairwise(steps), 1):
        if row not in starts and step != before + 1:
            raise DataError(
                f"State-action pair row {row}: step {step} follows step {before}. "
                "The steps of a sequence are 0, 1, 2, ...; a new sequence begins at 0."
            )


def _prompts(rows: Sequence[Mapping[str, Any]], owners: Sequence[int]) -> list[Sequence[int]]:
    if "prompt_ids" not in rows[0]:
        return []
    prompts = {owner: row["prompt_ids"] for owner, row in zip(owners, rows, strict=True)}
    return [prompts.get(owner, []) for owner in range(max(prompts) + 1)]
