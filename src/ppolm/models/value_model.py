"""The value model: how much reward is still to come from each state."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from ppolm.base_setup import AdapterSet
from ppolm.batches.sequences import Microbatch, TokenSequences
from ppolm.models.base_model import BaseModel
from ppolm.models.scalar_head import ScalarHead


class ValueModel(BaseModel):
    """V(s_t): the value adapter with a scalar head, read at the position before each action."""

    def __init__(self, adapters: AdapterSet) -> None:
        super().__init__(adapters, "value")
        self.head = adapters.heads["value"] = ScalarHead(self.setup.hidden_size, self.setup.device)

    def parameters(self) -> dict[str, Tensor]:
        """Adapter and head."""
        return super().parameters() | {f"head.{name}": value for name, value in self.head.named_parameters()}

    def token_values(self, batch: Microbatch) -> Tensor:
        """V(s) [n] before each action of a microbatch, with gradients if the role is trainable."""
        with self.active():
            return self.head(self.states(batch))

    def values(self, sequences: TokenSequences, token_budget: int) -> Tensor:
        """V(s) of every state, flat, without gradients: all states of a sequence from one forward pass."""
        return self.score(sequences, token_budget, self.token_values)

    def load_weights(self, folder: str | Path) -> None:
        """Load the weights of a saved value model into this one."""
        super().load_weights(folder)
        self.head.load(folder)

    def save(self, folder: str | Path) -> None:
        """Write adapter and head."""
        super().save(folder)
        self.head.save(folder)
