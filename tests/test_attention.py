"""Query heads that share keys and values give the library's numbers, without copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from ppolm.base_setup import BaseModelSetup, attention
from ppolm.base_setup.attention import CHUNK, NAME
from ppolm.config import SFTConfig
from tests.closeness import assert_rounding
from tests.tiny_models import ARCHITECTURES, make_model_folder


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("length", "chunk"), [(1, CHUNK), (7, CHUNK), (7, 3)])
def test_hidden_states_and_gradients_under_a_mask_are_the_librarys(
    architecture: str, length: int, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppolm.base_setup.attention.CHUNK", chunk)
    folder = make_model_folder(tmp_path, architecture, scale=2.0)
    setup = BaseModelSetup(SFTConfig(model_name=str(folder), device="cpu"))
    plain = AutoModelForCausalLM.from_pretrained(folder).eval().requires_grad_(False)
    shared = getattr(setup.text_config, "num_key_value_heads", None) == 2
    assert (setup.causal_lm.config._attn_implementation == NAME) == shared
    assert plain.config._attn_implementation == "sdpa"
    ids, positions = torch.arange(3, 3 + 2 * length).view(2, length), torch.arange(length)[None].expand(2, -1)
    mask = torch.ones(2, 1, length, length, dtype=torch.bool).tril()
    mask[1, 0, length // 2 :, 0] = length == 1
    found = []
    for model in (setup.causal_lm, plain):
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
        hidden = model.base_model(
            inputs_embeds=embedded, attention_mask=mask, position_ids=positions, use_cache=False
        ).last_hidden_state
        hidden.sin().sum().backward()
        found.append((hidden.detach(), embedded.grad))
    for ours, theirs in zip(*found, strict=True):
        assert_rounding(ours, theirs)


def test_keys_that_no_query_of_a_chunk_can_see_are_left_out(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))
    seen: list[tuple[int, int]] = []
    attend = attention.scaled_dot_product_attention

    def watch(query: torch.Tensor, key: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        seen.append((query.shape[2], key.shape[2]))
        return attend(query, key, *arguments, **options)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", watch)
    monkeypatch.setattr(attention, "CHUNK", 4)
    for length, expected in ((7, [(7, 7)]), (10, [(4, 4), (4, 8), (2, 10)])):
        seen.clear()
        mask = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
        setup.hidden_states(torch.arange(3, 3 + length)[None], torch.arange(length)[None], mask)
        assert seen == expected * setup.text_config.num_hidden_layers


def test_the_saved_model_names_no_attention_of_ours(model_folder: Path, tmp_path: Path) -> None:
    setup = BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))
    setup.causal_lm.save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()
