"""Prompts and answers as forward passes, packed or not, whichever costs less; the caller sees no difference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from ppolm.batches.packing import Answers, pack
from ppolm.batches.packing_cost import Bundle, Cost, bundles, most_together, topics
from ppolm.batches.sequences import PASS_COST, Microbatch, Read, TokenSequences, split_by_tokens


def arrange(
    items: Sequence[Answers],
    token_budget: int,
    pad_id: int,
    device: torch.device,
    read: Read,
    segments: bool,
    cost: Cost,
) -> Iterator[Microbatch]:
    """All items in microbatches, whose ``rows`` are indices into the wanted states of all items, in the items' order.

    All answers of an item are in the same microbatch.
    """
    groups = topics(items)
    most = most_together(groups, token_budget, read, cost)
    if most == 0:
        return apart(items, token_budget, pad_id, device, read, segments, cost.start)
    together = [bundle for topic in groups for bundle in bundles(topic, most, token_budget)]
    return bundled(items, together, token_budget, pad_id, device, read, cost.start)


def apart(
    items: Sequence[Answers],
    token_budget: int,
    pad_id: int,
    device: torch.device,
    read: Read,
    segments: bool,
    pass_cost: int = PASS_COST,
) -> Iterator[Microbatch]:
    """Like ``arrange``, with a row of its own for every answer."""
    flat = TokenSequences(*zip(*((item.prompt, answer) for item in items for answer in item.answers), strict=True))
    first = torch.tensor([0, *(len(item.answers) for item in items)]).cumsum(0).tolist()
    own, lengths = [range(*pair) for pair in pairwise(first)], flat.lengths(read, segments)
    groups = split_by_tokens([len(one) * max(lengths[i] for i in one) for one in own], token_budget, pass_cost)
    return flat.padded([[i for item in group for i in own[item]] for group in groups], pad_id, device, read, segments)


def bundled(
    items: Sequence[Answers],
    together: Sequence[Bundle],
    token_budget: int,
    pad_id: int,
    device: torch.device,
    read: Read,
    pass_cost: int = PASS_COST,
) -> Iterator[Microbatch]:
    """Like ``arrange``, with the answers of a bundle after their prompt, each once for all items that contain it."""
    packed, computed = _each_answer_once(items, together, read)
    order, uses = computed.argsort(stable=True), computed.bincount()
    begins = uses.cumsum(0) - uses
    for batch in pack(packed, token_budget, pad_id, device, read, pass_cost):
        yield _for_every_use(batch, order, begins, uses)


def _each_answer_once(items: Sequence[Answers], together: Sequence[Bundle], read: Read) -> tuple[list[Answers], Tensor]:
    """The prompt of every bundle with its distinct answers; and for every wanted state, the computed one [wanted]."""
    counts = [[1 if read == "ends" else len(answer) for answer in item.answers] for item in items]
    starts = torch.tensor([0, *(count for own in counts for count in own)]).cumsum(0).tolist()
    first = torch.tensor([0, *map(len, counts)]).cumsum(0).tolist()
    packed, computed = [], torch.empty(starts[-1], dtype=torch.long)
    at = 0
    for bundle in together:
        where: dict[int, int] = {}
        answers: dict[int, Tensor] = {}
        for item, own in bundle.items:
            for number, answer in enumerate(own):
                count, start = counts[item][number], starts[first[item] + number]
                if answer not in where:
                    where[answer], answers[answer], at = at, items[item].answers[number], at + count
                computed[start : start + count] = torch.arange(count) + where[answer]
        packed.append(Answers(items[bundle.items[0][0]].prompt, tuple(answers.values())))
    return packed, computed


def _for_every_use(batch: Microbatch, order: Tensor, begins: Tensor, uses: Tensor) -> Microbatch:
    """Turn a microbatch of computed states into one of wanted states: each is read once per item that wants it.

    ``order`` [wanted] lists the wanted states, sorted by the computed state they come from: those of computed state i
    begin at ``begins[i]``, and there are ``uses[i]`` of them.
    """
    repeats = uses[batch.rows]
    if bool((repeats == 1).all()):
        return dataclasses.replace(batch, rows=order[begins[batch.rows]])
    taken = torch.repeat_interleave(torch.arange(len(batch.rows)), repeats)
    nth = torch.arange(len(taken)) - torch.repeat_interleave(repeats.cumsum(0) - repeats, repeats)
    here = taken.to(batch.state_index.device)
    return dataclasses.replace(
        batch,
        state_index=batch.state_index[here],
        actions=batch.actions[here],
        rows=order[begins[batch.rows[taken]] + nth],
        most=None,  # states of a row are now read more than once
    )
