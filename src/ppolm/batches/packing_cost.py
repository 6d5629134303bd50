"""How many answers share a row with their prompt: decided by cost, from lengths and the model's shape alone.

A prompt shared by several answers is computed once; but rows get wide, and attention costs the width squared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ppolm.batches.packing import Answers, fill_bins
from ppolm.batches.sequences import PASS_COST, Read, split_by_tokens

ALONE, PACKED, LAST = 1.1, 0.8, 2.7
"""Time of attention per pair of tokens, relative to the time of as many operations in products: in a row of its own,
in a packed row, in the last block. Attention weighs twice as much in training as in scoring; these are the means, good
enough for both (``python -m bench.packing``)."""

PAYS = 0.97
"""Packed rows must cost less than this share of plain rows, which need no mask: estimates are no more exact."""


@dataclass(frozen=True)
class Topic:
    """A prompt and the distinct answers to it, as token counts, and which of the answers each item contains."""

    prompt: int
    answers: list[int]
    items: list[tuple[int, tuple[int, ...]]]
    """The index of an item, and the indices of its answers in ``answers``."""


@dataclass(frozen=True)
class Bundle:
    """Items with the same prompt that are computed together: their indices, and their answers, each once."""

    topic: Topic
    items: list[tuple[int, tuple[int, ...]]]
    answers: list[int]

    @property
    def size(self) -> int:
        """Number of tokens, counting the prompt once."""
        return self.topic.prompt + sum(self.topic.answers[answer] for answer in self.answers)


def topics(items: Sequence[Answers]) -> list[Topic]:
    """The items grouped by prompt, in the order in which the prompts first appear."""
    found: dict[bytes, Topic] = {}
    numbers: dict[tuple[bytes, bytes], int] = {}
    for number, item in enumerate(items):
        prompt = item.prompt.numpy().tobytes()
        topic = found.setdefault(prompt, Topic(len(item.prompt), [], []))
        own = []
        for answer in item.answers:
            key = (prompt, answer.numpy().tobytes())
            if key not in numbers:
                numbers[key] = len(topic.answers)
                topic.answers.append(len(answer))
            own.append(numbers[key])
        topic.items.append((number, tuple(own)))
    return list(found.values())


def bundles(topic: Topic, most: int, token_budget: int) -> list[Bundle]:
    """The items in bundles of similar size: at most ``most`` answers and ``token_budget`` tokens, or a single item."""
    count = -(-len(topic.answers) // most)
    each = -(-len(topic.answers) // count)
    made: list[Bundle] = []
    held: dict[int, None] = {}
    tokens = 0
    for item, own in topic.items:
        new = [answer for answer in dict.fromkeys(own) if answer not in held]
        more = sum(topic.answers[answer] for answer in new)
        if not made or len(held) + len(new) > each or tokens + more > token_budget:
            made.append(Bundle(topic, [], []))
            held, tokens, new = {}, topic.prompt, list(dict.fromkeys(own))
            more = sum(topic.answers[answer] for answer in new)
        held.update(dict.fromkeys(new))
        made[-1].items.append((item, own))
        made[-1].answers.extend(new)
        tokens += more
    return made


def size_in(config: Any, name: str) -> int | None:
    """A size from a model's configuration; where layers differ in it, the largest."""
    if name in (getattr(config, "per_layer_attributes", None) or ()):  # can only be read layer by layer
        found = [getattr(config.per_layer_config[layer], name, None) for layer in range(config.num_hidden_layers)]
    else:
        value = getattr(config, name, None)
        found = list(value) if isinstance(value, (list, tuple)) else [value]
    return max((size for size in found if size), default=None)


@dataclass(frozen=True)
class Cost:
    """What decides between layouts: a model's shape, as far as it determines the cost of products and attention."""

    blocks: int
    """Blocks that are computed."""
    balance: float
    """Number of tokens at which attention takes as many operations as the products of a block."""
    kv: float
    """Share of keys and values in these products: in the last block nothing else is computed for all tokens."""
    start: int = PASS_COST
    """Cost of a pass through a block however small it is, in tokens: it depends on the device."""

    @classmethod
    def of(cls, config: Any, skipped: int = 0, start: int = PASS_COST) -> Cost:
        """From a model's configuration, without the ``skipped`` blocks.

        A token takes 2 operations per weight, and 4 per channel of the heads for each token that it sees.
        """
        heads, hidden = config.num_attention_heads, config.hidden_size
        head = size_in(config, "head_dim") or hidden // heads
        shared = size_in(config, "num_key_value_heads") or heads
        inner = size_in(config, "intermediate_size") or 4 * hidden
        kv = 2 * hidden * head * shared
        weights = kv + 2 * hidden * head * heads + 3 * hidden * inner
        return cls(config.num_hidden_layers - skipped, weights / (2 * heads * head), kv / weights, start)

    def of_pass(self, rows: int, width: int, wanted: int, packed: bool) -> float:
        """Cost of a forward pass, in tokens that go through the products of one block.

        rows · [(blocks - 1 + kv) · width + ((blocks - 1) · seen + LAST · wanted · width) / balance] + blocks · start

        ``wanted`` states are read from each row; ``seen`` counts the pairs of a token and one that it sees. In a row of
        its own: ALONE · width² / 2, since later tokens are left out; packed: PACKED · width².
        """
        seen = PACKED * width**2 if packed else ALONE * width**2 / 2
        products = (self.blocks - 1 + self.kv) * width
        attention = ((self.blocks - 1) * seen + LAST * wanted * width) / self.balance
        return rows * (products + attention) + self.blocks * self.start


def packed_cost(groups: Sequence[Topic], most: int, token_budget: int, read: Read, cost: Cost) -> float:
    """Cost of all passes if at most ``most`` answers share a row with their prompt."""
    made = [bundle for topic in groups for bundle in bundles(topic, most, token_budget)]
    sizes = [bundle.size for bundle in made]
    wanted = [len(one.answers) if read == "ends" else one.size - one.topic.prompt for one in made]
    rows = [(sum(sizes[i] for i in one), sum(wanted[i] for i in one)) for one in fill_bins(sizes)]
    return _cost(rows, split_by_tokens([width for width, _ in rows], token_budget, cost.start), True, cost)


def apart_cost(groups: Sequence[Topic], token_budget: int, read: Read, cost: Cost) -> float:
    """Cost of all passes if every answer has a row of its own, after its prompt."""
    rows, held = [], []
    for topic in groups:
        for _, own in topic.items:
            longest = max(topic.answers[answer] for answer in own)
            held.append((len(own), topic.prompt + longest))
            rows.append((topic.prompt + longest, 1 if read == "ends" else longest))
    passes = split_by_tokens([count * width for count, width in held], token_budget, cost.start)
    return _cost(rows, [[i for i in one for _ in range(held[i][0])] for one in passes], False, cost)


def _cost(rows: Sequence[tuple[int, int]], passes: Sequence[Sequence[int]], packed: bool, cost: Cost) -> float:
    shapes = [(len(one), max(rows[i][0] for i in one), max(rows[i][1] for i in one)) for one in passes]
    return sum(cost.of_pass(*shape, packed) for shape in shapes)


def most_together(groups: Sequence[Topic], token_budget: int, read: Read, cost: Cost) -> int:
    """How many answers at most should share a row with their prompt for the lowest cost; 0: do not pack.

    Candidates are 1 (packed, but side by side), 2, 4, ... and all. The choice depends on lengths, the model's shape and
    the kind of device alone, so that a resumed run decides as the interrupted one did. If costs are equal, narrower
    rows win.
    """
    largest = max(len(topic.answers) for topic in groups)
    tried = [*(2**power for power in range(largest.bit_length()) if 2**power < largest), largest]
    costs = {0: PAYS * apart_cost(groups, token_budget, read, cost)}
    costs |= {most: packed_cost(groups, most, token_budget, read, cost) for most in tried}
    return min(costs, key=lambda most: costs[most])
