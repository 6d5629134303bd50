"""LoRA as one operation gives PEFT's numbers and gradients, and PEFT's own code where it is more than s B A."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft.tuners.lora import Linear as LoraLayer

from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
from ppolm.base_setup.lora_linear import lora_linear
from ppolm.config import SFTConfig
from tests.tiny_models import ARCHITECTURES, make_model_folder


def with_adapters(folder: Path, **changes: object) -> AdapterSet:
    config = SFTConfig(model_name=str(folder), lora_r=4, device="cpu", **changes)  # type: ignore[arg-type]
    adapters = AdapterSet(BaseModelSetup(config))
    torch.manual_seed(0)
    for name in ("one", "two"):
        adapters.create(name, new_lora_config(config, adapters.setup.causal_lm))
        for value in adapters.parameters(name).values():
            torch.nn.init.normal_(value, std=0.1)
    return adapters


def layers(adapters: AdapterSet) -> list[LoraLayer]:
    return [module for module in adapters.model.modules() if isinstance(module, LoraLayer)]


def run(adapters: AdapterSet) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Last hidden states and the gradients of adapter "one"."""
    adapters.activate("one", trainable=True)
    adapters.model.zero_grad()
    hidden = adapters.setup.hidden_states(torch.arange(3, 15).view(2, 6))
    (hidden.float() * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    return hidden.detach(), {k: v.grad.clone() for k, v in adapters.parameters("one").items() if v.grad is not None}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_numbers_and_gradients_are_those_of_peft(architecture: str, tmp_path: Path) -> None:
    adapters = with_adapters(make_model_folder(tmp_path, architecture))
    hidden, gradients = run(adapters)
    assert all("forward" in vars(layer) for layer in layers(adapters))
    for layer in layers(adapters):
        del layer.forward  # PEFT's own again
    expected, expected_gradients = run(adapters)
    torch.testing.assert_close(hidden, expected, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == expected_gradients.keys() == adapters.parameters("one").keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name], rtol=1e-4, atol=1e-5)


def test_no_adapter_is_the_bare_base_to_the_bit_and_a_fresh_one_too(model_folder: Path) -> None:
    config = SFTConfig(model_name=str(model_folder), lora_r=4, device="cpu")
    setup = BaseModelSetup(config)
    ids = torch.arange(3, 15).view(2, 6)
    bare = setup.hidden_states(ids)
    adapters = AdapterSet(setup)
    adapters.create("fresh", new_lora_config(config, setup.causal_lm))
    adapters.activate(None)
    assert torch.equal(setup.hidden_states(ids), bare)
    adapters.activate("fresh")
    assert torch.equal(setup.hidden_states(ids), bare)


def test_gradients_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    x, w, bias = torch.randn(2, 3, 5), torch.randn(4, 5), torch.randn(4)
    a, b = torch.randn(2, 5), torch.randn(4, 2)
    x, w, bias, a, b = (tensor.double() for tensor in (x, w, bias, a, b))
    moving = [tensor.requires_grad_() for tensor in (x, a, b)]
    assert torch.autograd.gradcheck(lambda x, a, b: lora_linear(x, w, bias, a, b, 1.5), moving)
    assert w.grad is None


def test_dropout_in_training_is_left_to_peft(model_folder: Path) -> None:
    adapters = with_adapters(model_folder, lora_dropout=0.5)
    first, _ = run(adapters)
    assert torch.equal(run(adapters)[0], first), "evaluation is without dropout"
    adapters.model.train()
    assert not torch.equal(run(adapters)[0], run(adapters)[0])


def test_in_bfloat16_the_adapter_is_multiplied_in_bfloat16_and_learns_in_float32(model_folder: Path) -> None:
    exact, rough = with_adapters(model_folder), with_adapters(model_folder, dtype="bfloat16")
    for name, value in rough.parameters("one").items():
        value.data.copy_(exact.parameters("one")[name])
    hidden, gradients = run(rough)
    expected, expected_gradients = run(exact)
    assert hidden.dtype == torch.bfloat16
    assert float((hidden.float() - expected).abs().mean() / expected.abs().mean()) < 0.02
    for name, gradient in gradients.items():
        assert gradient.dtype == torch.float32
        assert float((gradient - expected_gradients[name]).norm() / expected_gradients[name].norm()) < 0.05
