"""Token sequences and how they are split into padded microbatches under a token budget."""

from __future__ import annotations

import dataclasses
from bisect import bisect
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from ppolm.batches.one_copy import on_device

Read = Literal["actions", "ends"]
"""Where hidden states are wanted: before every token of every answer, or at every answer's last token."""


@dataclass(frozen=True)
class Segment:
    """A prompt or an answer in a row of a microbatch. ``key`` identifies its tokens and everything they see."""

    row: int
    start: int
    length: int
    key: bytes


@dataclass(frozen=True)
class Microbatch:
    """Right-padded ids of some sequences, and the positions of the wanted states in them.

    ``rows`` are the indices of these states among all wanted states of the TokenSequences. Positions and mask are
    given where several sequences share a row (see packing.py).
    """

    input_ids: Tensor  # [B, T]
    state_index: Tensor  # [n], into the flattened B*T positions
    actions: Tensor  # [n]
    rows: Tensor  # [n]
    position_ids: Tensor | None = None  # [B, T]
    mask: Tensor | None = None  # [B, 1, T, T]
    segments: tuple[Segment, ...] = ()
    most: int | None = None  # W: largest number of wanted states in a row; None: to be counted

    def wanted_positions(self) -> tuple[Tensor, Tensor]:
        """Positions [B, W] of the wanted states in their rows, W the most in any row, and their indices [n] in B*W."""
        rows, width = self.input_ids.shape
        row, position = self.state_index // width, self.state_index % width
        most = int(row.bincount().max()) if self.most is None else self.most
        # States are sorted by row. Counting them would make the host wait for the device.
        starts = torch.searchsorted(row, torch.arange(rows, device=row.device))
        place = torch.arange(len(row), device=row.device) - starts[row] + row * most
        positions = torch.zeros(rows * most, dtype=torch.long, device=row.device)
        positions[place] = position
        return positions.view(rows, most), place


@dataclass(frozen=True)
class TokenSequences:
    """Ragged sequences, each a context (the prompt) and the actions taken after it.

    The state before action t of a sequence with c context tokens is read at position c - 1 + t.
    """

    contexts: Sequence[Tensor]  # [P] each
    actions: Sequence[Tensor]  # [A] each

    @cached_property
    def starts(self) -> list[int]:
        """Index of every sequence's first action among all actions."""
        return torch.tensor([0, *map(len, self.actions)]).cumsum(0).tolist()

    def wanted(self, read: Read) -> int:
        """How many states are wanted from all sequences."""
        return len(self.actions) if read == "ends" else self.starts[-1]

    def microbatches(
        self, token_budget: int, pad_id: int, device: torch.device, read: Read = "actions", segments: bool = False
    ) -> Iterator[Microbatch]:
        """All sequences in padded microbatches, similar lengths together.

        No state before an action depends on the last action, so it is left out, unless its own state is wanted, or
        ``segments`` are: these are always whole, so that their cached states serve every use.
        """
        groups = split_by_tokens(self.lengths(read, segments), token_budget)
        return self.padded(groups, pad_id, device, read, segments)

    def padded(
        self, groups: Iterable[list[int]], pad_id: int, device: torch.device, read: Read, segments: bool
    ) -> Iterator[Microbatch]:
        """A padded microbatch for each group of sequences."""
        lengths = self.lengths(read, segments)
        for indices in groups:
            batch = self._pad(indices, lengths, pad_id, device, read)
            yield dataclasses.replace(batch, segments=self._segments(indices)) if segments else batch

    def lengths(self, read: Read, segments: bool) -> list[int]:
        """Number of tokens of each sequence that are computed."""
        left_out = 0 if segments or read == "ends" else 1
        pairs = zip(self.contexts, self.actions, strict=True)
        return [len(context) + len(actions) - left_out for context, actions in pairs]

    def _pad(self, indices: list[int], lengths: list[int], pad_id: int, device: torch.device, read: Read) -> Microbatch:
        width = max(lengths[i] for i in indices)
        input_ids = torch.full((len(indices), width), pad_id, dtype=torch.long)
        state_index, rows, read_actions = [], [], []
        for row, i in enumerate(indices):
            context, actions, start = self.contexts[i], self.actions[i], len(self.contexts[i])
            input_ids[row, : lengths[i]] = torch.cat([context, actions])[: lengths[i]]
            if read == "actions":
                state_index.append(torch.arange(len(actions)) + row * width + start - 1)
                rows.append(torch.arange(len(actions)) + self.starts[i])
                read_actions.append(actions)
            else:
                state_index.append(torch.tensor([row * width + lengths[i] - 1]))
                rows.append(torch.tensor([i]))
                read_actions.append(input_ids[row, lengths[i] - 1 : lengths[i]])
        ids, index, moved = on_device([input_ids, torch.cat(state_index), torch.cat(read_actions)], device)
        return Microbatch(ids, index, moved, rows=torch.cat(rows), most=max(map(len, rows)))

    def _segments(self, indices: list[int]) -> tuple[Segment, ...]:
        return tuple(
            segment
            for row, i in enumerate(indices)
            for segment in segments_of(row, 0, self.contexts[i], [self.actions[i]])
        )


def segments_of(row: int, start: int, prompt: Tensor, answers: Sequence[Tensor]) -> list[Segment]:
    """The segments of a prompt that begins at ``start``, and of the answers that follow it in order."""
    key = prompt.numpy().tobytes()
    segments, start = [Segment(row, start, len(prompt), key)], start + len(prompt)
    for answer in answers:
        # The prompt's length comes first: another split of the same tokens has another key.
        segments.append(Segment(row, start, len(answer), b"%d:" % len(prompt) + key + answer.numpy().tobytes()))
        start += len(answer)
    return segments


def cut_middle(prompt: Tensor, room: int) -> Tensor:
    """At most ``room`` tokens of a prompt: its middle is cut, because tasks are stated at the beginning or the end."""
    if len(prompt) <= room:
        return prompt
    head = room // 2
    return torch.cat([prompt[:head], prompt[len(prompt) - (room - head) :]])


PASS_COST = 128
"""Padding tokens that cost as much as one more forward pass: about the time that a pass takes however small it is. This
is the figure of a CPU; for devices see ``base_setup/device.py``."""


def split_by_tokens(lengths: Sequence[int], token_budget: int, pass_cost: int = PASS_COST) -> list[list[int]]:
    """Groups of indices, longest first, each at most ``token_budget`` tokens when padded (or one sequence).

    Of all ways to split the sorted lengths, the cheapest: tokens, padding included, plus ``pass_cost`` per group.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    widths, cheapest = [lengths[i] for i in order], [0]  # cheapest[n]: the cost of the first n, grouped best

    def cost(begin: int, end: int) -> float:
        """Of the first ``end``, if their last group begins at ``begin``; over the budget, a later beginning wins."""
        tokens = widths[begin] * (end - begin)
        if tokens > token_budget and end - begin > 1:
            return 1e30 * (len(order) - begin)
        return cheapest[begin] + tokens + pass_cost

    # Widths decrease, so a later beginning that is cheaper for one end is cheaper for all later ends. Each beginning is
    # the best for a stretch of ends, which it takes over from earlier ones: no end has to try all beginnings.
    stretches, begins = deque([(1, 0)]), [0]  # (first end, beginning); begins[n]: where the last group of n begins
    for end in range(1, len(order) + 1):
        if len(stretches) > 1 and stretches[1][0] == end:
            stretches.popleft()
        begins.append(stretches[0][1])
        cheapest.append(int(cost(begins[end], end)))
        while stretches[-1][0] > end and cost(end, stretches[-1][0]) < cost(stretches[-1][1], stretches[-1][0]):
            stretches.pop()
        first, before = stretches[-1]
        later = range(max(first, end) + 1, len(order) + 1)
        taken = bisect(later, False, key=lambda to: cost(end, to) < cost(before, to))
        if taken < len(later):
            stretches.append((later[taken], end))
    groups, end = [], len(order)
    while end:
        groups.append(order[begins[end] : end])
        end = begins[end]
    return groups[::-1]
