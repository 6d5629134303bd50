"""What the four roles share: a view of the one base through one adapter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from ppolm.base_setup import AdapterSet
from ppolm.base_setup.device import scoring_tokens
from ppolm.batches.arrange import apart, arrange
from ppolm.batches.packing import Answers, wanted_rows
from ppolm.batches.packing_cost import Cost
from ppolm.batches.sequences import Microbatch, Read, TokenSequences
from ppolm.ranks.deal import deal, deal_by_key


def scores_of(batches: Iterable[Microbatch], measure: Callable[[Microbatch], Tensor], count: int) -> Tensor:
    """``measure`` of all ``count`` wanted states, on the CPU: read once, after the last batch, not after each.

    Those of other processes are 0.
    """
    found = [(batch.rows, measure(batch).float()) for batch in batches]
    scores = torch.zeros(count)
    if not found:
        return scores
    scores[torch.cat([rows for rows, _ in found])] = torch.cat([values for _, values in found]).cpu()
    return scores


class BaseModel:
    """A role: the shared base seen through ``adapter`` (None: the bare base). It owns no base weights.

    Every computation activates its role for as long as it takes, and then restores the one that was active before.
    """

    def __init__(self, adapters: AdapterSet, adapter: str | None) -> None:
        self.adapters = adapters
        self.setup = adapters.setup
        self.adapter = adapter

    def active(self, trainable: bool | None = None) -> AbstractContextManager[None]:
        """Switch the base to this role inside a ``with``; its parameters require gradients only if ``trainable``.

        None: unchanged if this role is already active, else without gradients. A backward pass belongs inside, too:
        outside, the role's parameters require no gradients, and torch would silently drop theirs.
        """
        return self.adapters.active(self.adapter, trainable)

    def parameters(self) -> dict[str, Tensor]:
        """The role's own parameters."""
        return {} if self.adapter is None else self.adapters.parameters(self.adapter)

    @cached_property
    def first_block(self) -> int:
        """Index of the lowest block that this role's adapter changes."""
        return self.adapters.first_block(self.adapter)

    def states(self, batch: Microbatch) -> Tensor:
        """The wanted hidden states [n, d] of a microbatch, from one forward pass; above the trunk where possible."""
        trunk = self.adapters.trunk
        with self.active():
            if trunk is not None and self.first_block >= trunk.depth:
                return trunk.finish(batch)
            return self.setup.wanted_states(batch.input_ids, batch)

    def passes(
        self, items: Sequence[Answers], token_budget: int, read: Read, packs: bool | None = None
    ) -> Iterator[Microbatch]:
        """Forward passes over prompts with their answers, packed where the model supports it and it costs less.

        Of several processes each gets its own share of the items; ``rows`` are those of all items in any case.
        """
        ranks = self.setup.ranks
        if not ranks.shares:
            return self._passes(items, token_budget, read, packs)
        keys = [item.prompt.numpy().tobytes() for item in items]
        if self.adapters.trunk is not None:  # who has the lower states of a prompt keeps it
            owners = deal_by_key(keys, ranks.size)
        else:
            owners = deal([item.size for item in items], keys, ranks.size)
        own = [i for i, owner in enumerate(owners) if owner == ranks.rank]
        rows = wanted_rows(items, own, read)
        batches = self._passes([items[i] for i in own], token_budget, read, packs) if own else iter(())
        found = (dataclasses.replace(batch, rows=rows[batch.rows]) for batch in batches)
        return found if self.setup.shards is None else self._in_step(found)

    def _in_step(self, batches: Iterator[Microbatch]) -> Iterator[Microbatch]:
        """The same passes, and idle ones until the last process is done: in every pass all fetch each other's shards.

        So each batch must be computed, and its gradients if there are any, before the next one is asked for.
        """
        ranks = self.setup.ranks
        for batch in batches:
            ranks.some(True)
            yield batch
        while ranks.some(False):
            self._idle()

    def _idle(self) -> None:
        """A pass of which nothing is used, nor of its gradients: zero times infinity would not be zero."""
        tokens = [torch.zeros(1, dtype=torch.long)]
        for batch in TokenSequences(tokens, tokens).microbatches(2, self.setup.tokenizer.pad_id, self.setup.device):
            states = self.states(batch)
            if states.requires_grad:
                trained = [value for value in self.parameters().values() if value.requires_grad]
                torch.autograd.grad(states.sum(), trained, allow_unused=True)

    def _passes(
        self, items: Sequence[Answers], token_budget: int, read: Read, packs: bool | None
    ) -> Iterator[Microbatch]:
        options = (token_budget, self.setup.tokenizer.pad_id, self.setup.device, read, self.adapters.trunk is not None)
        if self.adapters.packs_prompts if packs is None else packs:
            trunk = self.adapters.trunk
            skipped = trunk.depth if trunk is not None and self.first_block >= trunk.depth else 0
            return arrange(items, *options, Cost.of(self.setup.text_config, skipped, self.setup.pass_cost))
        return apart(items, *options, self.setup.pass_cost)

    def microbatches(
        self, sequences: TokenSequences, token_budget: int, read: Read = "actions"
    ) -> Iterator[Microbatch]:
        """All sequences within a token budget per forward pass, a prompt once for several answers if it pays off."""
        pairs = zip(sequences.contexts, sequences.actions, strict=True)
        shared = len({context.numpy().tobytes() for context in sequences.contexts}) < len(sequences.contexts)
        longest = max(map(len, sequences.contexts)) + max(map(len, sequences.actions))
        packs = shared and self.adapters.packs(longest)  # saving padding alone is not worth a mask
        return self.passes([Answers(context, (actions,)) for context, actions in pairs], token_budget, read, packs)

    @torch.no_grad()
    def score(
        self,
        sequences: TokenSequences,
        token_budget: int,
        measure: Callable[[Microbatch], Tensor],
        read: Read = "actions",
    ) -> Tensor:
        """``measure`` for every wanted state, as a flat float32 tensor on the CPU in the order of ``sequences``."""
        tokens = scoring_tokens(self.setup.device, token_budget)
        with self.active():  # once for all batches
            own = scores_of(self.microbatches(sequences, tokens, read), measure, sequences.wanted(read))
        return self.setup.ranks.sum(own)

    def load_weights(self, folder: str | Path) -> None:
        """Load the weights of a saved adapter of the same shape into this role's adapter."""
        self.adapters.load_weights(str(self.adapter), folder)

    def save(self, folder: str | Path) -> None:
        """Write the adapter as a PEFT folder."""
        if self.adapter is None:
            raise ValueError("the bare base has no adapter to save")
        self.adapters.save(self.adapter, folder)
