"""Token sequences and how they are cut into padded microbatches under a token budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Microbatch:
    """Right-padded ids of some sequences, and where in them their states stand.

    ``rows`` are the flat positions of the actions among all actions of the TokenSequences. Positions and mask are given
    where several sequences share a row (see packing.py).
    """

    input_ids: Tensor  # [B, T]
    state_index: Tensor  # [n], into the flattened B*T positions
    actions: Tensor  # [n]
    rows: Tensor  # [n]
    position_ids: Tensor | None = None  # [B, T]
    mask: Tensor | None = None  # [B, 1, T, T]


@dataclass(frozen=True)
class TokenSequences:
    """Ragged sequences: a context (the prompt) each, and the actions taken after it.

    The state before action t of a sequence with c context tokens is read at position c - 1 + t.
    """

    contexts: Sequence[Tensor]
    actions: Sequence[Tensor]

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens a forward pass needs: the last action is nobody's state, so it is left out."""
        return [len(context) + len(action) - 1 for context, action in zip(self.contexts, self.actions, strict=True)]

    def microbatches(self, token_budget: int, pad_id: int, device: torch.device) -> Iterator[Microbatch]:
        """All sequences in padded microbatches, similar lengths together."""
        starts = torch.tensor([0, *[len(action) for action in self.actions]]).cumsum(0)
        for indices in split_by_tokens(self.lengths, token_budget):
            yield self._pad(indices, starts, pad_id, device)

    def _pad(self, indices: list[int], starts: Tensor, pad_id: int, device: torch.device) -> Microbatch:
        width = max(self.lengths[i] for i in indices)
        input_ids = torch.full((len(indices), width), pad_id, dtype=torch.long)
        state_index, rows = [], []
        for row, i in enumerate(indices):
            context, actions = self.contexts[i], self.actions[i]
            input_ids[row, : self.lengths[i]] = torch.cat([context, actions[:-1]])
            state_index.append(torch.arange(len(actions)) + row * width + len(context) - 1)
            rows.append(torch.arange(len(actions)) + starts[i])
        return Microbatch(
            input_ids=input_ids.to(device),
            state_index=torch.cat(state_index).to(device),
            actions=torch.cat([self.actions[i] for i in indices]).to(device),
            rows=torch.cat(rows),
        )


def cut_middle(prompt: Tensor, room: int) -> Tensor:
    """At most ``room`` tokens of a prompt: its middle goes, because tasks are stated at the beginning or the end."""
    if len(prompt) <= room:
        return prompt
    head = room // 2
    return torch.cat([prompt[:head], prompt[len(prompt) - (room - head) :]])


def split_by_tokens(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Groups of indices, sorted by length, each at most ``token_budget`` tokens when padded (or one sequence)."""
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        # Longest first: a group's first member is its width.
        if groups and lengths[groups[-1][0]] * (len(groups[-1]) + 1) <= token_budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
