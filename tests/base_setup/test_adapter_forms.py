"""Every form of adapter that PEFT's LoRA config can express gives PEFT's own results, or is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import EvaConfig, LoraConfig, PeftModel, get_peft_model, initialize_lora_eva_weights
from transformers import AutoModelForCausalLM

from ppolm.base_setup.model_setup import setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig
from ppolm.errors import ModelError
from tests.closeness import assert_rounding
from tests.tiny_models import make_model_folder

MakeConfig = Callable[..., PPOConfig]
SEQUENCES = TokenSequences(
    [torch.arange(5, 12), torch.arange(40, 43)], [torch.tensor([60, 7, 5, 1]), torch.tensor([9, 90, 17])]
)


@dataclass(frozen=True)
class Form:
    """A form of adapter and, if it is refused, a word from the error message."""

    settings: dict[str, Any] = field(default_factory=dict)
    refused: str | None = None
    architecture: str = "qwen3"


FORMS = {
    "plain": Form(),
    "rslora": Form({"use_rslora": True}),
    "DoRA": Form({"use_dora": True}),
    "bias of B": Form({"lora_bias": True}),
    "gaussian": Form({"init_lora_weights": "gaussian"}),
    "orthogonal": Form({"init_lora_weights": "orthogonal"}),
    "EVA": Form({"init_lora_weights": "eva", "eva_config": EvaConfig(rho=1.0)}),
    "rank pattern": Form({"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}}),
    "some layers": Form({"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "layers"}),
    "some left out": Form({"exclude_modules": ["gate_proj"]}),
    "named modules": Form({"target_modules": ["q_proj", "down_proj"]}),
    "the output matrix": Form({"target_modules": ["q_proj", "lm_head"]}),
    "the embeddings": Form({"target_modules": ["q_proj", "embed_tokens"]}),
    "trained tokens": Form({"trainable_token_indices": [5, 7, 60]}, "trainable_token_indices"),
    "trained tokens of tied embeddings": Form(
        {"trainable_token_indices": [5, 7, 60]}, "trainable_token_indices", "gemma"
    ),
    "transposed weights": Form(architecture="gpt2"),
    "PiSSA": Form({"init_lora_weights": "pissa"}, "pissa"),
    "PiSSA by iterations": Form({"init_lora_weights": "pissa_niter_4"}, "pissa"),
    "OLoRA": Form({"init_lora_weights": "olora"}, "olora"),
    "all biases": Form({"bias": "all"}, "bias", "qwen2"),
    "LoRA's biases": Form({"bias": "lora_only"}, "bias", "qwen2"),
    "whole modules": Form({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    "repeated layers": Form({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication"),
    "bare parameters": Form({"target_modules": [], "target_parameters": ["q_proj.weight"]}, "target_parameters"),
    "activated": Form({"alora_invocation_tokens": [5, 6]}, "alora_invocation_tokens"),
}


def save_adapter(model_folder: Path, folder: Path, settings: dict[str, Any]) -> None:
    """An adapter as PEFT trains and saves it, with weights large enough to matter."""
    base = AutoModelForCausalLM.from_pretrained(model_folder)
    config = LoraConfig(**{"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | settings)
    model = get_peft_model(base, config)
    if settings.get("init_lora_weights") == "eva":
        initialize_lora_eva_weights(model, [{"input_ids": torch.arange(3, 60).view(3, 19)}] * 3)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(str(folder))


def plain_logprobs(model: Any) -> torch.Tensor:
    found = []
    for prompt, answer in zip(SEQUENCES.contexts, SEQUENCES.actions, strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.cat([prompt, answer])[None], use_cache=False).logits[0]
        wanted = logits.log_softmax(-1)[len(prompt) - 1 : -1]
        found.append(wanted.gather(-1, answer[:, None]).squeeze(-1))
    return torch.cat(found)


@pytest.mark.parametrize("name", FORMS)
def test_an_sft_adapter_of_any_form_is_the_reference_and_the_policys_start(
    name: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    form = FORMS[name]
    folder = make_model_folder(tmp_path / "model", form.architecture, scale=2.0)
    save_adapter(folder, tmp_path / "adapter", form.settings)
    config = make_config(model_name=str(folder), sft_adapter=str(tmp_path / "adapter"))
    if form.refused is not None:
        with pytest.raises(ModelError, match=form.refused):
            setup_models(config)
        return
    models = setup_models(config)
    bare = AutoModelForCausalLM.from_pretrained(folder).eval()
    base = plain_logprobs(bare)
    expected = plain_logprobs(PeftModel.from_pretrained(bare, str(tmp_path / "adapter")).eval())
    assert float((expected - base).abs().max()) > 0.05, "the adapter acts"
    assert_rounding(models.sft.logprobs(SEQUENCES, 1.0, 256), expected)
    assert torch.equal(models.policy.logprobs(SEQUENCES, 1.0, 256), models.sft.logprobs(SEQUENCES, 1.0, 256))
    models.adapters.activate(None)
    assert_rounding(plain_logprobs(models.setup.causal_lm), base)
    with models.policy.active(trainable=True):
        for batch in models.policy.microbatches(SEQUENCES, 256):
            models.policy.token_logprobs(batch, 1.0)[0].sum().backward()
        own = {name for name, value in models.setup.causal_lm.named_parameters() if value.requires_grad}
    trained = models.policy.parameters()
    assert len(own) == len(trained), "all of the policy's numbers train, and nothing else"
    assert any(value.grad is not None and float(value.grad.abs().max()) > 0 for value in trained.values())
    before = models.sft.logprobs(SEQUENCES, 1.0, 256)
    with torch.no_grad():
        for value in trained.values():
            value.add_(0.01)
    assert torch.equal(models.sft.logprobs(SEQUENCES, 1.0, 256), before), "the reference does not move with the policy"
    assert not torch.equal(models.policy.logprobs(SEQUENCES, 1.0, 256), before)
    models.policy.save(tmp_path / "saved")
    again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), str(tmp_path / "saved")).eval()
    assert_rounding(models.policy.logprobs(SEQUENCES, 1.0, 256), plain_logprobs(again))


def test_an_initialiser_that_rewrites_the_base_is_found_out_whatever_it_is_called(
    make_config: MakeConfig,
) -> None:
    models = setup_models(make_config())
    lora = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights="olora", task_type="CAUSAL_LM")
    with pytest.raises(ModelError, match="changed weights"):
        models.adapters.create("other", lora)


def test_a_role_may_be_called_like_a_module_of_the_base(make_config: MakeConfig, tmp_path: Path) -> None:
    models = setup_models(make_config())
    adapters = models.adapters
    adapters.create("mlp", adapters.lora_config("policy"))
    assert len(adapters.parameters("mlp")) == len(models.policy.parameters())
    with torch.no_grad():
        for value in adapters.parameters("mlp").values():
            value.normal_()
    adapters.save("mlp", tmp_path / "saved")
    kept = {name: value.clone() for name, value in adapters.parameters("mlp").items()}
    with torch.no_grad():
        for value in adapters.parameters("mlp").values():
            value.zero_()
    adapters.load_weights("mlp", tmp_path / "saved")
    for name, value in adapters.parameters("mlp").items():
        assert torch.equal(value, kept[name])
    assert json.loads((tmp_path / "saved" / "adapter_config.json").read_text())["r"] == 4
