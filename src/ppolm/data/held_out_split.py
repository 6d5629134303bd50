"""Which rows are trained on and which are held out: the one place that decides it, always by prompt.

Rows of the same prompt go the same way, or a held-out figure would measure memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import torch

from ppolm.errors import DataError

log = logging.getLogger(__name__)
Row = TypeVar("Row")
ENOUGH_PROMPTS = 16
"""Held-out prompts below which no difference of rewards is called more than chance."""
Key = Callable[[Row], bytes]
"""The prompt of a row: ``Prompt.key``."""


def group_by_prompt(rows: Sequence[Row], key: Key[Row]) -> list[list[int]]:
    """Indices of the rows of each prompt, in the order in which the prompts first appear."""
    groups: dict[bytes, list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(key(row), []).append(number)
    return list(groups.values())


def hold_out(
    rows: Sequence[Row],
    groups: Sequence[Sequence[int]],
    room: int,
    random: torch.Generator,
    size: Callable[[Sequence[int]], int] = len,
) -> tuple[list[Row], list[Row]]:
    """Rows to train on, and rows of randomly drawn prompts, at most ``room`` by ``size``."""
    held: set[int] = set()
    used = 0
    for group in torch.randperm(len(groups), generator=random).tolist():
        if used + size(groups[group]) <= room:
            held.update(groups[group])
            used += size(groups[group])
    return [row for i, row in enumerate(rows) if i not in held], [rows[i] for i in sorted(held)]


def apart_from(train: Sequence[Row], held_out: Collection[bytes], key: Key[Row], what: str) -> list[Row]:
    """The training rows whose prompt is not evaluated on; the number of others is reported.

    What somebody gives to evaluate on is meant to stay unseen, so it is the training that gives way.
    """
    kept = [row for row in train if key(row) not in held_out]
    shared = len(train) - len(kept)
    if not kept:
        raise DataError(
            f"All {shared} {what} to train on are also given to evaluate on, so nothing would be left to train on. "
            "Give other data to evaluate on (of a data set, name:split names a split), or none: then some is held out."
        )
    if shared:
        log.warning(
            "%d of %d %s to train on are also given to evaluate on. They are left out of the training.",
            shared,
            len(train),
            what,
        )
    return kept
