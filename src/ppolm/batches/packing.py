"""Several sequences side by side in one row, and a prompt once for all its answers: fewer tokens, the same numbers.

A mask decides which token sees which, and positions count from the beginning of each sequence, so a hidden state is
the same as if its sequence were alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ppolm.batches.one_copy import on_device
from ppolm.batches.sequences import PASS_COST, Microbatch, Read, segments_of, split_by_tokens

ALIGNED = 16
"""On a device, rows with a mask are padded to a multiple of this width: there attention copies any other mask, once per
head and block."""


@dataclass(frozen=True)
class Answers:
    """Token ids of a prompt and of one or several answers to it."""

    prompt: Tensor  # [P]
    answers: tuple[Tensor, ...]  # [A] each

    @property
    def size(self) -> int:
        """Number of tokens, counting the prompt once."""
        return len(self.prompt) + sum(map(len, self.answers))

    def numbers(self) -> list[float]:
        """All ids, with -1 after each part."""
        return [id_ for part in (self.prompt, *self.answers) for id_ in (*part.tolist(), -1)]


def pack(
    items: Sequence[Answers],
    token_budget: int,
    pad_id: int,
    device: torch.device,
    read: Read,
    pass_cost: int = PASS_COST,
) -> Iterator[Microbatch]:
    """All items in microbatches, whose ``rows`` are indices into the wanted states of all items, in the items' order.

    All answers of an item are in the same microbatch. Rows are no wider than the longest item: the cost of attention
    is quadratic in the width.
    """
    starts = torch.tensor([0, *(_wanted(item, read) for item in items)]).cumsum(0).tolist()
    bins = fill_bins([item.size for item in items])
    widths = [sum(items[i].size for i in one) for one in bins]
    for group in split_by_tokens(widths, token_budget, pass_cost):
        yield _microbatch([[(items[i], starts[i]) for i in bins[b]] for b in group], pad_id, device, read)


def fill_bins(sizes: Sequence[int]) -> list[list[int]]:
    """Indices in bins that are no wider than the largest size: the longest first, each in the first bin it fits.

    A tree over the bins stores the largest room in each half, so that finding a bin takes log n steps.
    """
    capacity, leaves = max(sizes, default=0), 1 << max(len(sizes) - 1, 0).bit_length()
    room = [capacity] * (2 * leaves)  # room[1] is the root, the halves of room[n] are room[2n] and room[2n + 1]
    bins: list[list[int]] = []
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        node = 1
        while node < leaves:
            node *= 2
            node += room[node] < sizes[i]
        if node - leaves == len(bins):
            bins.append([])
        bins[node - leaves].append(i)
        room[node] -= sizes[i]
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return bins


def wanted_rows(items: Sequence[Answers], chosen: Sequence[int], read: Read) -> Tensor:
    """The indices, among the wanted states of all items, of those of the chosen ones."""
    counts = torch.tensor([_wanted(item, read) for item in items], dtype=torch.long)
    starts = (counts.cumsum(0) - counts).tolist()
    parts = [torch.arange(starts[i], starts[i] + int(counts[i])) for i in chosen]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long)


def _wanted(item: Answers, read: Read) -> int:
    return len(item.answers) if read == "ends" else sum(map(len, item.answers))


def _microbatch(rows: list[list[tuple[Answers, int]]], pad_id: int, device: torch.device, read: Read) -> Microbatch:
    """Rows of items side by side; each item comes with the index of its first wanted state among all wanted states."""
    width = max(sum(item.size for item, _ in row) for row in rows)
    width = width if device.type == "cpu" else -(-width // ALIGNED) * ALIGNED
    input_ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    positions = torch.zeros((len(rows), width), dtype=torch.long)
    tree = torch.zeros((2, len(rows), width), dtype=torch.long)  # item and branch of each token; branch 0 is the prompt
    states, actions, wanted, segments = [], [], [], []
    for number, row in enumerate(rows):
        at = 0
        for name, (item, start) in enumerate(row, 1):
            segments += segments_of(number, at, item.prompt, item.answers)
            own = slice(at, at + item.size)
            input_ids[number, own] = torch.cat([item.prompt, *item.answers])
            positions[number, own], tree[1, number, own] = _positions_and_branches(item)
            tree[0, number, own] = name
            columns = at + _read_columns(item, read)
            states.append(columns + number * width)
            actions.append(torch.cat(item.answers) if read == "actions" else input_ids[number, columns])
            wanted.append(torch.arange(len(columns)) + start)
            at += item.size
    moved = on_device([input_ids, torch.cat(states), torch.cat(actions), positions, *tree], device)
    return Microbatch(
        input_ids=moved[0],
        state_index=moved[1],
        actions=moved[2],
        rows=torch.cat(wanted),
        position_ids=moved[3],
        mask=_mask(*moved[4:]),
        segments=tuple(segments),
        most=max(sum(_wanted(item, read) for item, _ in row) for row in rows),
    )


def _positions_and_branches(item: Answers) -> tuple[Tensor, Tensor]:
    """For every token of an item [size]: its position, which each answer continues from the prompt, and its branch."""
    prompt, lengths = len(item.prompt), [len(item.prompt), *map(len, item.answers)]
    positions = [torch.arange(prompt), *(torch.arange(prompt, prompt + length) for length in lengths[1:])]
    return torch.cat(positions), torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def _read_columns(item: Answers, read: Read) -> Tensor:
    """Columns of an item's wanted states [n]: before every token of every answer, or at every answer's end."""
    last, begin, columns = torch.tensor([len(item.prompt) - 1]), len(item.prompt), []
    for answer in item.answers:
        end = begin + len(answer)
        if len(answer) == 0:
            columns += [last] if read == "ends" else []  # nothing but the prompt is read
        elif read == "ends":
            columns.append(torch.tensor([end - 1]))
        else:
            columns += [last, torch.arange(begin, end - 1)]
        begin = end
    return torch.cat(columns)


def _mask(item: Tensor, branch: Tensor) -> Tensor:
    """[B, 1, T, T], True where a token sees another: an earlier one of its item, in its own branch or the prompt.

    Built where ``item`` and ``branch`` are: on a device they are T numbers each to copy, the mask T².
    """
    same_item = item[:, :, None] == item[:, None, :]
    seen_branch = (branch[:, None, :] == 0) | (branch[:, :, None] == branch[:, None, :])
    earlier = torch.ones(item.shape[1], item.shape[1], dtype=torch.bool, device=item.device).tril()
    return (same_item & seen_branch & earlier)[:, None]
