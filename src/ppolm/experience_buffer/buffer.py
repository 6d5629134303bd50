"""The experience buffer: tables of recent rollouts within a token budget, split into minibatches for training."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ppolm.state import State
from ppolm.token_attribution import SAPairs, as_sa_pairs

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchedData:
    """Experience to train on; ``minibatches`` splits it by whole sequences."""

    pairs: SAPairs
    """All tables that the buffer holds, as one."""

    def minibatches(self, size: int, order: str, random: torch.Generator) -> Iterator[SAPairs]:
        """Every sequence once, ``size`` at a time: freshly permuted, or ``bucketed`` with similar lengths together, or
        ``grouped`` with the answers to a prompt together.

        Bucketing saves padding, grouping computes a prompt once for its answers; both correlate the sequences of a
        minibatch. The order of the minibatches is always random.
        """
        permutation = torch.randperm(self.pairs.num_sequences, generator=random)
        if order == "grouped":
            owners = self.pairs.columns["prompt_idx"][self.pairs.offsets[:-1]]
            ranks = torch.randperm(int(owners.max()) + 1, generator=random)
            permutation = permutation[ranks[owners[permutation]].argsort(stable=True)]
        if order == "bucketed":
            # A stable sort of the permutation: ties stay in random order.
            permutation = permutation[self.pairs.lengths[permutation].argsort(stable=True)]
        batches = permutation.split(size)
        visits = torch.randperm(len(batches), generator=random) if order == "bucketed" else torch.arange(len(batches))
        for visit in visits.tolist():
            yield self.pairs.select(batches[visit])


class ExperienceBuffer:
    """Holds the newest ``max_rollouts`` tables and at most ``capacity`` tokens.

    On overflow, whole sequences are evicted, oldest first, and counted in ``evicted_tokens``. Tables replaced by
    ``max_rollouts`` newer ones are not overflow: they are simply no longer needed.
    """

    def __init__(self, capacity: int, max_rollouts: int = 1) -> None:
        self.capacity, self.max_rollouts = capacity, max_rollouts
        self.tables: list[SAPairs] = []
        self.evicted_tokens = 0

    def __len__(self) -> int:
        """Tokens held."""
        return sum(map(len, self.tables))

    def store(self, data: SAPairs | Sequence[Mapping[str, Any]]) -> BatchedData:
        """Add a rollout and return everything held, as training data."""
        self.tables = [*self.tables, as_sa_pairs(data)][-self.max_rollouts :]
        self._make_room()
        return BatchedData(SAPairs.concat(self.tables))

    def state_dict(self) -> State:
        """The tables that a later step trains on again, and what was evicted so far."""
        again = self.max_rollouts - 1
        return {"evicted_tokens": self.evicted_tokens, "tables": self.tables[-again:] if again else []}

    def load_state_dict(self, state: State) -> None:
        """Restore saved tables."""
        self.tables, self.evicted_tokens = list(state["tables"]), int(state["evicted_tokens"])

    def _make_room(self) -> None:
        over = len(self) - self.capacity
        if over <= 0:
            return
        # The newest sequence always stays, even if it alone is too long: there must be something to train on.
        lengths = torch.cat([table.lengths for table in self.tables])[:-1]
        leaving = min(int((lengths.cumsum(0) < over).sum()) + 1, len(lengths))
        self.evicted_tokens += int(lengths[:leaving].sum())
        for table in list(self.tables):
            gone = min(leaving, table.num_sequences)
            leaving -= gone
            rest = self.tables.pop(0).select(torch.arange(gone, table.num_sequences))
            self.tables += [rest] if len(rest) else []
        log.warning("buffer_capacity %d exceeded: %d tokens evicted so far", self.capacity, self.evicted_tokens)
