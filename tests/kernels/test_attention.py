"""Query heads that share keys and values give the library's results, without copies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from ppolm.base_setup import BaseModelSetup
from ppolm.config import SFTConfig
from ppolm.kernels.attention import NAME
from tests.closeness import assert_rounding
from tests.tiny_models import ARCHITECTURES, make_model_folder


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("length", [1, 7])
def test_hidden_states_and_gradients_under_a_mask_are_the_librarys(
    architecture: str, length: int, tmp_path: Path
) -> None:
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


def test_the_saved_model_names_no_attention_of_ours(model_folder: Path, tmp_path: Path) -> None:
    setup = BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))
    setup.causal_lm.save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()
