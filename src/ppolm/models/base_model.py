"""What the four roles share: a view of the one base through one adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from ppolm.base_setup import AdapterSet
from ppolm.data.packing import pack_sequences, shares_prompts
from ppolm.data.sequences import Microbatch, Read, TokenSequences


class BaseModel:
    """A role: the shared base seen through ``adapter`` (None: the bare base). It owns no base weights."""

    def __init__(self, adapters: AdapterSet, adapter: str | None) -> None:
        self.adapters = adapters
        self.setup = adapters.setup
        self.adapter = adapter

    def activate(self, trainable: bool = False) -> None:
        """Switch the base to this role; its own parameters require gradients only if ``trainable``."""
        self.adapters.activate(self.adapter, trainable)

    def parameters(self) -> dict[str, Tensor]:
        """The parameters that are this role's own."""
        return {} if self.adapter is None else self.adapters.parameters(self.adapter)

    @cached_property
    def first_block(self) -> int:
        """The lowest block that is this role's own."""
        return self.adapters.first_block(self.adapter)

    def states(self, batch: Microbatch) -> Tensor:
        """The wanted hidden states [n, d] of a microbatch, by one forward pass; above the trunk, if there is one."""
        trunk = self.adapters.trunk
        if trunk is not None and self.first_block >= trunk.depth:
            return trunk.finish(batch)
        return self.setup.wanted_states(batch.input_ids, batch)

    def microbatches(
        self, sequences: TokenSequences, token_budget: int, read: Read = "actions"
    ) -> Iterator[Microbatch]:
        """All sequences within a budget of tokens per forward pass, a prompt once for all its answers if possible."""
        place = (token_budget, self.setup.tokenizer.pad_id, self.setup.device)
        longest = max(map(len, sequences.contexts)) + max(map(len, sequences.actions))
        if self.adapters.packs(longest) and shares_prompts(sequences):
            return pack_sequences(sequences, *place, read)
        return sequences.microbatches(*place, read, segments=self.adapters.trunk is not None)

    @torch.no_grad()
    def score(
        self,
        sequences: TokenSequences,
        token_budget: int,
        measure: Callable[[Microbatch], Tensor],
        read: Read = "actions",
    ) -> Tensor:
        """``measure`` of every wanted state, as a flat float32 tensor on the CPU in the order of ``sequences``."""
        self.activate()
        scores = torch.empty(sequences.wanted(read))
        for batch in self.microbatches(sequences, token_budget, read):
            scores[batch.rows] = measure(batch).float().cpu()
        return scores

    def load_weights(self, folder: str | Path) -> None:
        """Put the weights of a saved adapter of the same shape into this role's adapter."""
        self.adapters.load_weights(str(self.adapter), folder)

    def save(self, folder: str | Path) -> None:
        """Write the adapter as a PEFT folder."""
        if self.adapter is None:
            raise ValueError("the bare base has no adapter to save")
        self.adapters.save(self.adapter, folder)
