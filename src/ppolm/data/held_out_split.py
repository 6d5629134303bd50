"""Splitting rows into training and held-out data, always by prompt; no other module makes this decision.

Rows of one prompt stay on the same side; otherwise held-out results would measure memorisation.
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
"""With fewer held-out prompts, no difference in reward is called significant."""
Key = Callable[[Row], bytes]
"""Gives the key of a row's prompt: ``Prompt.key``."""


def group_by_prompt(rows: Sequence[Row], key: Key[Row]) -> list[list[int]]:
    """Row indices of each prompt, in the order in which the prompts first appear."""
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
    """Training rows, and held-out rows of randomly drawn prompts whose total ``size`` is at most ``room``."""
    held: set[int] = set()
    used = 0
    for group in torch.randperm(len(groups), generator=random).tolist():
        if used + size(groups[group]) <= room:
            held.update(groups[group])
            used += size(groups[group])
    return [row for i, row in enumerate(rows) if i not in held], [rows[i] for i in sorted(held)]


def apart_from(train: Sequence[Row], held_out: Collection[bytes], key: Key[Row], what: str) -> list[Row]:
    """The training rows whose prompt is not in the evaluation data; the number of dropped rows is reported.

    Data given for evaluation is meant to stay unseen, so shared prompts are dropped from training.
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
