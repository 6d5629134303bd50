"""The prompts of a table as token ids and, made once for all the tables that share them, as tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class PromptIds(list[Sequence[int]]):
    """Token ids of each prompt. A minibatch touches the prompts it uses and no others, however many the table has."""

    def __init__(self, prompts: Sequence[Sequence[int]]) -> None:
        super().__init__(prompts)
        self._tensors: dict[int, Tensor] = {}

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]]) -> PromptIds:
        """The prompts themselves, with the tensors made so far, if they are already of this kind."""
        return prompts if isinstance(prompts, cls) else cls(prompts)

    def tensor(self, number: int) -> Tensor:
        """Prompt ``number`` as a tensor; made when it is first wanted."""
        if number not in self._tensors:
            self._tensors[number] = torch.tensor(list(self[number]))
        return self._tensors[number]
