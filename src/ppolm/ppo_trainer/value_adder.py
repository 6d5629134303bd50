"""State values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ppolm.batches.sequences import TokenSequences
from ppolm.models import ValueModel
from ppolm.state import Stateless
from ppolm.token_attribution import SAPairs, as_sa_pairs


class ValueAdder(Stateless):
    """Estimates the value of each state with the value model."""

    def __init__(self, value_model: ValueModel, token_budget: int) -> None:
        self.value_model, self.token_budget = value_model, token_budget

    def add_values(self, states: SAPairs | Sequence[str | Mapping[str, Any]]) -> Tensor:
        """V(s) [N] of the states of a table, one forward pass per sequence; or of states or pairs given as text."""
        if isinstance(states, SAPairs):
            return self.value_model.values(states.sequences, self.token_budget)
        encode = self.value_model.setup.tokenizer.encode
        texts = [state["state"] if isinstance(state, Mapping) else state for state in states]
        contexts = [torch.tensor(encode(text)) for text in texts]
        # V(s) is read before the action, so any placeholder action serves for a bare state.
        placeholders = [torch.zeros(1, dtype=torch.long)] * len(contexts)
        return self.value_model.values(TokenSequences(contexts, placeholders), self.token_budget)

    def add_values_to_sa_pairs(self, sa_pairs: SAPairs | Sequence[Mapping[str, Any]]) -> SAPairs:
        """Add ``value``."""
        pairs = as_sa_pairs(sa_pairs)
        return pairs.with_columns(value=self.add_values(pairs))
