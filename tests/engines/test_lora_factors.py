"""What another library gets to know of an adapter gives PEFT's own result, or the adapter is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig

from ppolm.base_setup import AdapterSet, BaseModelSetup
from ppolm.config import PPOConfig
from ppolm.engines.lora_factors import lora_factors
from ppolm.errors import ModelError
from ppolm.models import PolicyModel

MakeConfig = Callable[..., PPOConfig]
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rsLoRA": {"use_rslora": True},
    "rank and alpha patterns": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}},
    "named modules": {"target_modules": ["q_proj", "down_proj"]},
    "the last block": {"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "layers"},
    "the output matrix": {"target_modules": ["lm_head"]},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "DoRA": ({"use_dora": True}, r"DoRA \(use_dora\)"),
    "a bias": ({"lora_bias": True}, r"a bias \(lora_bias\)"),
    "embeddings": ({"target_modules": ["q_proj", "embed_tokens"]}, "an adapter on the embeddings"),
}


def random_policy(config: PPOConfig, **form: Any) -> PolicyModel:
    """A policy whose adapter has this form and random weights."""
    adapters = AdapterSet(BaseModelSetup(config))
    shape: dict[str, Any] = {"r": 4, "lora_alpha": 12, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    adapters.create("policy", LoraConfig(**(shape | form)))
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in adapters.parameters("policy").values():
            parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.2)
    return PolicyModel(adapters)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_factors_of_every_layer_multiply_to_what_peft_adds(make_config: MakeConfig, form: dict[str, Any]) -> None:
    policy = random_policy(make_config(), **form)
    factors = lora_factors(policy, "mlx")
    assert {id(one) for both in factors for one in (both.a, both.b)} == {id(p) for p in policy.parameters().values()}
    for one in factors:
        layer = policy.adapters.model.get_submodule(f"base_model.model.{one.layer}")
        torch.testing.assert_close(one.scale * one.b @ one.a, layer.get_delta_weight("policy"))


@pytest.mark.parametrize(("form", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_more_than_lora_is_refused_by_name(make_config: MakeConfig, form: dict[str, Any], words: str) -> None:
    policy = random_policy(make_config(), **form)
    with pytest.raises(ModelError, match=rf"adapter has {words}.*engine mlx cannot apply.*engine: local"):
        lora_factors(policy, "mlx")
