"""What a sampler needs from a model. The base setup provides it, and anything else could."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from ppolm.batches.sequences import Microbatch
from ppolm.kernels.rounding import Rounding


class Tokenizer(Protocol):
    """Text to token ids, and back."""

    @property
    def pad_id(self) -> int:
        """Fills the rows of a batch; never an EOS."""

    @property
    def eos_ids(self) -> Sequence[int]:
        """All tokens that end a response."""

    def encode(self, prompt: str | Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a text or chat prompt."""

    def decode(self, ids: Sequence[int], after: Sequence[int] = (), keep_special: bool = False) -> str:
        """Text that ``ids`` add after the ids ``after``."""

    def decode_prompt(self, ids: Sequence[int]) -> str:
        """A prompt as it was written."""


class FastPaths(Protocol):
    """Which fast paths the model uses."""

    def has(self, path: Any) -> bool:
        """Whether a fast path is in use."""


class SamplingBase(Protocol):
    """A loaded model to sample from. Shapes: B rows, T positions, hidden width d, vocabulary size V."""

    @property
    def device(self) -> torch.device:
        """The device it runs on."""

    @property
    def dtype(self) -> torch.dtype:
        """Precision of its weights."""

    @property
    def rounding(self) -> Rounding:
        """By how much two correct computations of it may differ."""

    @property
    def text_config(self) -> Any:
        """The library's configuration, for its ``vocab_size``."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""

    @property
    def capabilities(self) -> FastPaths:
        """The fast paths that were found to agree with its own code."""

    @property
    def last_block(self) -> Any:
        """The last block, if it can be computed only at some positions."""

    def blocks(self, padded: bool = False, **inputs: Any) -> Any:
        """Run the transformer without its output matrix; ``padded``: whether the mask [B, T] hides anything."""

    def wanted_states(self, inputs: Tensor, batch: Microbatch) -> Tensor:
        """The wanted states [n, d] of a microbatch."""

    def project(self, hidden: Tensor) -> Tensor:
        """Logits [n, V] of hidden states [n, d]."""

    def sampling(self, prepared: Any) -> AbstractContextManager[None]:
        """A context for sampling one token at a time, with prepared layers if there are any."""
