"""Completions as token ids."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.errors import DataError, ModelError


def completion_ids(tokenizer: TokenizerSetup, text: str) -> Tensor:
    """Ids of an answer, ended by EOS: a model that is to stop must see where answers end."""
    eos = tokenizer.tokenizer.eos_token_id
    if eos is None:
        raise ModelError("The model's tokenizer has no EOS token, so no answer could end. Set one in its config.")
    return torch.tensor([*tokenizer.tokenizer(text, add_special_tokens=False)["input_ids"], eos])


def refuse_long(lengths: Sequence[int], context_length: int | None) -> None:
    """Raise for a row that does not fit the model's context."""
    for number, length in enumerate(lengths, 1):
        if context_length is not None and length > context_length:
            raise DataError(
                f"Row {number} has {length} tokens, more than the model's context of {context_length}. "
                "Shorten or remove it."
            )
