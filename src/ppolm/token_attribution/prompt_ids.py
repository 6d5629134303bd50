"""The prompts of a table as token ids and as tensors, which are created once for all tables that share them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class PromptIds(list[Sequence[int]]):
    """Token ids of each prompt. A minibatch converts only the prompts it uses, however many the table has."""

    def __init__(self, prompts: Sequence[Sequence[int]]) -> None:
        super().__init__(prompts)
        self._tensors: dict[int, Tensor] = {}

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]]) -> PromptIds:
        """The prompts themselves, with the tensors created so far, if they are already of this type."""
        return prompts if isinstance(prompts, cls) else cls(prompts)

    def tensor(self, number: int) -> Tensor:
        """Prompt ``number`` as a tensor, created on first use."""
        if number not in self._tensors:
            self._tensors[number] = torch.tensor(list(self[number]))
        return self._tensors[number]
