"""What the host knows of a mask is what the library would have read from the device, for every kind of mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Cache, DynamicCache, Gemma3TextConfig, PreTrainedConfig, Qwen3Config, masking_utils

from ppolm.base_setup.known_masks import answer_for_the_library, known_rows

SIZES: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
FULL = Qwen3Config(head_dim=8, **SIZES)
WINDOW = Gemma3TextConfig(head_dim=8, sliding_window=4, layer_types=["sliding_attention"], **SIZES)


def allowed(config: PreTrainedConfig, mask: torch.Tensor | None, seen: int, new: int) -> torch.Tensor:
    """What the queries of a pass over ``new`` tokens after ``seen`` others may see; [B, new, keys]."""
    config._attn_implementation = "sdpa"
    batch, cache = 2, None
    if mask is not None:
        cache = DynamicCache(config=config)
        if seen:
            cache.update(torch.zeros(batch, 1, seen, 8), torch.zeros(batch, 1, seen, 8), 0)
    positions = torch.arange(seen, seen + new)[None].expand(batch, -1)
    make = masking_utils.create_sliding_window_causal_mask if config is WINDOW else masking_utils.create_causal_mask
    made = make(config, torch.zeros(batch, new, 8), mask, cache, positions)
    return plainly(made, config, cache, new, batch)


def plainly(
    made: torch.Tensor | None, config: PreTrainedConfig, cache: Cache | None, new: int, batch: int
) -> torch.Tensor:
    """A mask in full: none means that each token sees those before it."""
    if made is not None:
        return made[:, 0]
    keys = new if cache is None else cache.get_mask_sizes(new, 0)[0]
    return torch.ones(batch, new, keys, dtype=torch.bool).tril(keys - new)


def left_padded(width: int, hidden: int) -> torch.Tensor:
    mask = torch.ones(2, width, dtype=torch.long)
    mask[1, :hidden] = 0
    return mask


@pytest.mark.parametrize("config", [FULL, WINDOW], ids=["full", "window"])
@pytest.mark.parametrize("hidden", [0, 2])
@pytest.mark.parametrize(("seen", "new"), [(0, 3), (0, 7), (3, 1), (9, 1)])
def test_a_mask_that_the_host_knows_hides_the_same(config: PreTrainedConfig, hidden: int, seen: int, new: int) -> None:
    mask = left_padded(seen + new, hidden)
    asked = allowed(config, mask, seen, new)
    with known_rows(padded=hidden > 0):
        assert torch.equal(allowed(config, mask, seen, new), asked)


@pytest.mark.parametrize("config", [FULL, WINDOW], ids=["full", "window"])
def test_rows_without_a_mask_are_single_texts(config: PreTrainedConfig) -> None:
    asked = allowed(config, None, 0, 6)
    with known_rows(padded=False):
        assert torch.equal(allowed(config, None, 0, 6), asked)


def test_outside_the_library_asks_as_before() -> None:
    rows = torch.tensor([[0, 1, 2, 0, 1]])
    assert masking_utils.find_packed_sequence_indices(rows).tolist() == [[0, 0, 0, 1, 1]]
    assert bool(masking_utils.fast_all(torch.tensor([True, True])))
    assert not bool(masking_utils.fast_all(torch.tensor([True, False])))


def test_the_answers_are_installed_once() -> None:
    before = masking_utils.fast_all
    answer_for_the_library()
    assert masking_utils.fast_all is before
