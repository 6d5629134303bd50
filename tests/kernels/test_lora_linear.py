"""LoRA as one operation gives PEFT's outputs and gradients, and falls back to PEFT where it is more than s B A."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from peft.tuners.lora import Linear as LoraLayer

from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
from ppolm.config import SFTConfig
from ppolm.kernels import products, replaced_forward
from ppolm.kernels.cpu_bfloat16 import make_bfloat16_safe
from ppolm.kernels.lora_linear import Adapted, FusedLoraForward, linears
from ppolm.kernels.products import ComputeMode
from tests.closeness import assert_all_rounding, assert_rounding
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


@pytest.fixture(autouse=True)
def safe() -> None:
    make_bfloat16_safe()


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
    assert all(isinstance(replaced_forward.find(layer), FusedLoraForward) for layer in layers(adapters))
    replaced_forward.undo(layers(adapters))  # PEFT's own again
    expected, expected_gradients = run(adapters)
    assert_rounding(hidden, expected)
    assert gradients.keys() == adapters.parameters("one").keys()
    assert_all_rounding(gradients, expected_gradients)


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
    sizes = [(2, 3, 5), (4, 5), (4,), (2, 5), (4, 2), (3, 5), (1, 5), (6, 1), (6, 5)]
    x, w, bias, a, b, bare, a2, b2, w2 = (torch.randn(*size).double() for size in sizes)
    moving = [tensor.requires_grad_() for tensor in (x, a, b, a2, b2)]

    def three(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, a2: torch.Tensor, b2: torch.Tensor) -> torch.Tensor:
        layers = [Adapted(w, bias, a, b, 1.5), Adapted(bare, None), Adapted(w2, None, a2, b2, 0.5)]
        return torch.cat(linears(x, layers), dim=-1)

    assert torch.autograd.gradcheck(three, moving)
    assert three(*moving).shape == (2, 3, 4 + 3 + 6)


@pytest.mark.parametrize("transposed", [False, True])
def test_where_float32_is_faster_products_of_many_rows_are_made_in_it(transposed: bool) -> None:
    torch.manual_seed(0)
    weight = torch.randn(48, 64).bfloat16()
    weight = weight.T.contiguous().T if transposed else weight
    a, b = torch.randn(4, 64, requires_grad=True), torch.randn(48, 4, requires_grad=True)
    for rows in (products.WIDE_ROWS, 3):
        x = torch.randn(rows, 64).requires_grad_()
        exact = x @ weight.float().T + 0.5 * (x @ a.T) @ b.T
        errors = []
        for many_rows in (torch.bfloat16, torch.float32):
            with products.computing(ComputeMode(many_rows, sampling=True)):
                (y,) = linears(x, [Adapted(weight, None, a, b, 0.5)])
            assert y.dtype == torch.float32
            grads = torch.autograd.grad(y.sum(), (x, a, b))
            expected = torch.autograd.grad(exact.sum(), (x, a, b), retain_graph=True)
            errors.append([float((g - e).abs().max()) for g, e in zip(grads, expected, strict=True)])
            if many_rows == torch.float32 and rows >= products.WIDE_ROWS:
                torch.testing.assert_close(y, exact)
        if rows >= products.WIDE_ROWS:
            assert all(wide < narrow for wide, narrow in zip(*reversed(errors), strict=True))
        else:
            assert errors[0] == errors[1], "few rows: the weights are not converted for them"
            (scored,) = linears(x, [Adapted(weight, None, a, b, 0.5)])
            torch.testing.assert_close(scored, exact, msg="unless a whole sequence is computed")


def test_logits_where_float32_is_faster_are_made_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "TILE", 7)
    torch.manual_seed(0)
    x, matrix = torch.randn(products.WIDE_ROWS, 16), torch.randn(30, 16).bfloat16()
    expected = x @ matrix.float().T
    assert_rounding(products.logits(x, matrix), expected)
    with products.computing(ComputeMode(sampling=True)):
        assert torch.equal(products.logits(x[:3], matrix), x[:3].bfloat16() @ matrix.T)


def test_a_mode_ends_with_its_block_and_other_threads_keep_theirs() -> None:
    seen: list[ComputeMode] = []
    with products.computing(ComputeMode(sampling=True)), products.computing(ComputeMode(torch.bfloat16)):
        thread = threading.Thread(target=lambda: seen.append(products.current_mode()))
        thread.start()
        thread.join()
        assert products.current_mode() == ComputeMode(torch.bfloat16)
    assert seen == [ComputeMode()] == [products.current_mode()]


def test_dropout_in_training_is_left_to_peft(model_folder: Path) -> None:
    adapters = with_adapters(model_folder, lora_dropout=0.5)
    first, _ = run(adapters)
    assert torch.equal(run(adapters)[0], first), "evaluation is without dropout"
    adapters.model.train()
    assert not torch.equal(run(adapters)[0], run(adapters)[0])


def test_on_bfloat16_weights_the_adapter_learns_what_it_learns_on_float32_ones(model_folder: Path) -> None:
    exact, rough = with_adapters(model_folder), with_adapters(model_folder, dtype="bfloat16")
    for name, value in rough.parameters("one").items():
        value.data.copy_(exact.parameters("one")[name])
    hidden, gradients = run(rough)
    expected, expected_gradients = run(exact)
    assert hidden.dtype == torch.float32
    assert float((hidden.float() - expected).abs().mean() / expected.abs().mean()) < 0.02
    for name, gradient in gradients.items():
        assert gradient.dtype == torch.float32
        assert float((gradient - expected_gradients[name]).norm() / expected_gradients[name].norm()) < 0.05
