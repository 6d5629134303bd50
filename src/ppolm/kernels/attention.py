"""Attention in which several query heads share keys and values, without copying them for every head."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "ppolm_grouped"
MASKED = ("sdpa", NAME)
"""Attention implementations that take a mask [B, 1, T, T] which is True where a token sees another."""
EXTRAS = frozenset(inspect.signature(sdpa_attention_forward).parameters) - {
    *("module", "query", "key", "value", "attention_mask", "dropout", "scaling", "is_causal", "kwargs")
}
"""Extra arguments that some models pass to the library's attention; calls with them are left to the library."""


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """softmax(q kᵀ · scale) v, like the library's own, which copies keys and values as soon as there is a mask.

    For a single new token, the heads of a group are the rows of one small product, on every device. For whole
    sequences torch shares keys and values itself on a CPU; on CUDA it would do so only without a mask, and otherwise
    compute attention by its plain formula, so there the library's copies are the lesser evil.
    """
    batch, heads, length, width = query.shape
    shared = key.shape[1]
    extras = [name for name in EXTRAS if options.get(name) is not None]
    whole = length > 1 and not query.is_cpu
    if shared == heads or attention_mask is None or attention_mask.shape[1] > 1 or extras or whole:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
    if length == 1:
        rows = query.reshape(batch, shared, heads // shared, width)
        mask = attention_mask.expand(-1, -1, heads // shared, -1)
        answer = scaled_dot_product_attention(rows, key, value, mask, dropout, scale=scaling)
        return answer.reshape(batch, 1, heads, -1), None
    answer = scaled_dot_product_attention(query, key, value, attention_mask, dropout, scale=scaling, enable_gqa=True)
    return answer.transpose(1, 2).contiguous(), None


def use_grouped_attention(model: PreTrainedModel) -> str | None:
    """Let a model that uses torch's attention use this one instead; returns the reason if it does not."""
    config = model.config.get_text_config()
    heads, shared = (getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads"))
    if model.config._attn_implementation != "sdpa":
        return f"attention is {model.config._attn_implementation}, not sdpa"
    if not isinstance(heads, int) or not isinstance(shared, int) or shared == heads:
        return "query heads do not share keys and values"
    if not _agrees(heads, shared):
        return "its results differ from the library's on this machine"
    # The library looks attention up by name in process-wide tables. A new name affects only models whose configuration
    # uses it, and it always means the same function.
    ALL_ATTENTION_FUNCTIONS.register(NAME, grouped_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    return None


def _agrees(heads: int, shared: int) -> bool:
    """Whether both give the same results, for one new token and for whole rows."""
    random = torch.Generator().manual_seed(0)
    module = nn.Module()
    module.is_causal, module.num_key_value_groups = True, heads // shared  # type: ignore[assignment]
    for queries, keys in ((1, 9), (7, 7), (385, 385)):
        query = torch.randn(2, heads, queries, 8, generator=random)
        key, value = (torch.randn(2, shared, keys, 8, generator=random) for _ in range(2))
        mask = (torch.rand(2, 1, queries, keys, generator=random) < 0.7).tril(keys - queries)
        mask[..., 0] = True
        ours, plain = (
            attend(module, query, key, value, mask, scaling=0.3)[0]
            for attend in (grouped_attention, sdpa_attention_forward)
        )
        if not torch.allclose(ours, plain, rtol=1e-4, atol=1e-5):
            return False
    return True
