"""A model whose own weights are trained: SFT of the whole model, or from scratch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from ppolm.base_setup import AdapterSet
from ppolm.models.language_model import LanguageModel


class FullFinetuneModel(LanguageModel):
    """The base itself, without adapters. PPO never uses it: there the base is frozen."""

    def __init__(self, adapters: AdapterSet) -> None:
        super().__init__(adapters, None)
        self._trainable = False

    @contextmanager
    def active(self, trainable: bool | None = None) -> Iterator[None]:
        """Let all weights or none require gradients inside a ``with``; None: unchanged."""
        before = self._trainable
        try:
            self._require_gradients(before if trainable is None else trainable)
            yield
        finally:
            self._require_gradients(before)

    def _require_gradients(self, trainable: bool) -> None:
        if self._trainable != trainable:
            self._trainable = trainable
            self.setup.causal_lm.requires_grad_(trainable)

    def parameters(self) -> dict[str, Tensor]:
        """All weights; tied ones once."""
        return dict(self.setup.causal_lm.named_parameters())

    def save(self, folder: str | Path) -> None:
        """Write a model folder with its tokenizer."""
        self.setup.causal_lm.save_pretrained(str(folder))
        self.setup.tokenizer.tokenizer.save_pretrained(str(folder))
