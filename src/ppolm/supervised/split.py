"""Rows to train on and rows to validate with, parted by prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from ppolm.config import SupervisedConfig
from ppolm.data.packing import Answers
from ppolm.errors import DataError

Row = TypeVar("Row")


def split_rows(
    rows: list[Row],
    held_out: Sequence[Row] | None,
    config: SupervisedConfig,
    answers_of: Callable[[Row], Answers],
    random: torch.Generator,
) -> tuple[list[Row], list[Row]]:
    """Training and validation rows. All rows of a prompt go the same way, or validation would measure memory."""
    if held_out is not None:
        return rows, some_rows(held_out, config.max_eval_rows, config.seed)
    groups = group_by_prompt(rows, answers_of)
    wanted = min(max(1, int(len(rows) * config.eval_fraction)), config.max_eval_rows)
    if len(groups) < 2 or len(rows) <= wanted:
        raise DataError(
            f"{len(rows)} rows with {len(groups)} different prompts are too few to train on and to validate with. "
            "Give more, or eval_data."
        )
    room = max(wanted, min(map(len, groups)))  # whole prompts: one at least, and no more rows than were asked for
    validation: set[int] = set()
    for group in torch.randperm(len(groups), generator=random).tolist():
        if len(validation) + len(groups[group]) <= room:
            validation.update(groups[group])
    training = [row for i, row in enumerate(rows) if i not in validation]
    return training, [rows[i] for i in sorted(validation)]


def group_by_prompt(
    rows: Sequence[Row], answers_of: Callable[[Row], Answers], shuffle: str = "prompts"
) -> list[list[int]]:
    """Indices of the rows, those of one prompt together; or each on its own, if single rows are to be shuffled."""
    if shuffle == "rows":
        return [[i] for i in range(len(rows))]
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(tuple(answers_of(row).prompt.tolist()), []).append(i)
    return list(groups.values())


def some_rows(rows: Sequence[Row], most: int, seed: int) -> list[Row]:
    """At most so many rows, from all over them: files are often sorted."""
    if len(rows) <= most:
        return list(rows)
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:most]
    return [rows[i] for i in sorted(chosen.tolist())]
