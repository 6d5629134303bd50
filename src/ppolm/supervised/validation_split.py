"""Splitting rows into training and validation rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from ppolm.batches.packing import Answers
from ppolm.config import SupervisedConfig
from ppolm.data.held_out_split import Key, apart_from, group_by_prompt, hold_out
from ppolm.errors import DataError

Row = TypeVar("Row")


def split_rows(
    rows: list[Row],
    held_out: Sequence[Row] | None,
    config: SupervisedConfig,
    key: Key[Row],
    random: torch.Generator,
) -> tuple[list[Row], list[Row]]:
    """Training and validation rows without shared prompts; validation rows are those given, or some of the rows."""
    if held_out is not None:
        return apart_from(rows, {key(row) for row in held_out}, key, "rows"), some_prompts(held_out, config, key)
    groups = group_by_prompt(rows, key)
    wanted = min(max(1, int(len(rows) * config.eval_fraction)), config.max_eval_rows)
    if len(groups) < 2 or len(rows) <= wanted:
        raise DataError(
            f"{len(rows)} rows with {len(groups)} different prompts are too few to train on and to validate with. "
            "Give more, or eval_data."
        )
    room = max(wanted, min(map(len, groups)))  # whole prompts: at least one, otherwise no more rows than wanted
    return hold_out(rows, groups, room, random)


def some_prompts(rows: Sequence[Row], config: SupervisedConfig, key: Key[Row]) -> list[Row]:
    """At most max_eval_rows rows, of randomly drawn prompts, since files are often sorted."""
    if len(rows) <= config.max_eval_rows:
        return list(rows)
    groups, random = group_by_prompt(rows, key), torch.Generator().manual_seed(config.seed)
    room = max(config.max_eval_rows, min(map(len, groups)))
    return hold_out(rows, groups, room, random)[1]


def batch_groups(rows: Sequence[Row], answers_of: Callable[[Row], Answers], shuffle: str) -> list[list[int]]:
    """Indices of the rows that are shuffled together: those of one prompt, or each row alone.

    Prompts are compared by token ids, because rows share the computation of their prompt's tokens.
    """
    if shuffle == "rows":
        return [[i] for i in range(len(rows))]
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(tuple(answers_of(row).prompt.tolist()), []).append(i)
    return list(groups.values())
