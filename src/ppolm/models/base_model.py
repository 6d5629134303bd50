"""What the four roles share: a view of the one base through one adapter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ppolm.base_setup import AdapterSet
from ppolm.data.sequences import Microbatch, TokenSequences


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

    def states(self, batch: Microbatch) -> Tensor:
        """Hidden states [n, d] before each action of a microbatch, by one forward pass."""
        hidden = self.setup.hidden_states(batch.input_ids, batch.position_ids, batch.mask)
        return hidden.flatten(0, 1)[batch.state_index]

    @torch.no_grad()
    def score(self, sequences: TokenSequences, token_budget: int, measure: Callable[[Microbatch], Tensor]) -> Tensor:
        """``measure`` of every action, as a flat float32 tensor on the CPU in the order of ``sequences``."""
        self.activate()
        scores = torch.empty(sum(len(actions) for actions in sequences.actions))
        for batch in sequences.microbatches(token_budget, self.setup.tokenizer.pad_id, self.setup.device):
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
