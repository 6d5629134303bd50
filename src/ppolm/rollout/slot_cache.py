"""Keys and values of running responses, in memory allocated once: a row per response, a column per token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache


class SlotCache(Cache):
    """The cache that the model's attention layers write to and read from; rows in use come first.

    Before each call of the model it is told what comes next: ``begin_prompts`` (whole prompts into new rows) or
    ``begin_tokens`` (one more token for every row in use).
    """

    def __init__(self, rows: int, width: int) -> None:
        super().__init__(layers=[])
        self.rows, self.width = rows, width
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._targets: tuple[Tensor, Tensor] | None = None
        self._columns: Tensor | None = None
        self._reach = 0

    def begin_prompts(self, rows: Tensor, owners: Tensor) -> None:
        """The next call brings prompts: row ``rows[i]`` will hold prompt ``owners[i]`` of them."""
        self._targets, self._columns = (rows, owners), None

    def begin_tokens(self, columns: Tensor, reach: int) -> None:
        """The next call brings one token for each of the first rows, stored at these columns, all below ``reach``."""
        self._targets, self._columns, self._reach = None, columns, reach

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the new keys and values [B, H, T, d] of a layer; returns those that its attention should see."""
        if layer_idx == len(self.keys):
            for store, new in ((self.keys, key_states), (self.values, value_states)):
                store.append(new.new_zeros(self.rows, new.shape[1], self.width, new.shape[3]))
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        if self._targets is not None:
            rows, owners = self._targets
            length = key_states.shape[2]
            keys[rows, :, :length] = key_states[owners]
            values[rows, :, :length] = value_states[owners]
            return key_states, value_states
        count = len(key_states)
        columns = self._columns[:, None, None, None]  # type: ignore[index]
        for held, brought in ((keys, key_states), (values, value_states)):  # values may be narrower than keys
            held[:count].scatter_(2, columns.expand(-1, held.shape[1], 1, held.shape[3]), brought)
        return keys[:count, :, : self._reach], values[:count, :, : self._reach]

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copy rows over others that are no longer needed."""
        for store in (*self.keys, *self.values):
            store[targets, :, : self._reach] = store[sources, :, : self._reach]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002 transformers' signature
        """Cached tokens that a prompt sees before itself: none."""
        return 0

    def get_query_offset(self, layer_idx: int | None = None) -> int:  # noqa: ARG002 transformers' signature
        """The column at which a prompt begins."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int | None = None) -> tuple[int, int]:  # noqa: ARG002 transformers' signature
        """A prompt sees only itself, from its beginning."""
        return query_length, 0


def seen(columns: Tensor, reach: int) -> Tensor:
    """Mask [B, 1, 1, reach]: a row whose newest token is at column c sees the columns up to c."""
    return (torch.arange(reach, device=columns.device) <= columns[:, None])[:, None, None]
