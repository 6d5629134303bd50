"""Layers prepared for sampling give the outputs of the layers they replace, and leave those unchanged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from ppolm.base_setup import AdapterSet, new_lora_config
from ppolm.base_setup.base_setup import BaseModelSetup
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig, SFTConfig
from ppolm.kernels.decode_layers import PAYS_AFTER, DecodeLayers, _Apart, _Beside, _kind, _Merged, packs_weights
from ppolm.kernels.lora_linear import Adapted, apply_layers, linears
from ppolm.kernels.products import WIDE_ROWS
from ppolm.rollout import slot_sampler
from ppolm.rollout.sampling import Sampled, Sampling
from ppolm.rollout.slot_sampler import SlotSampler
from tests.closeness import near
from tests.tiny_models import make_model_folder


def moved(make_config: Callable[..., PPOConfig], dtype: str) -> Models:
    """Models whose policy differs from the base."""
    models = setup_models(make_config(dtype=dtype))
    torch.manual_seed(0)
    with torch.no_grad():
        for value in models.policy.parameters().values():
            value.normal_(std=0.3)
    models.adapters.activate("policy")
    return models


def sample(setup: BaseModelSetup, count: int = 5) -> list[Sampled]:
    prompts = [[(5 * i + j) % 250 + 3 for j in range(3 + i)] for i in range(count)]
    uniforms = torch.rand(count, PAYS_AFTER, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return SlotSampler(setup, prompts, Sampling(PAYS_AFTER), uniforms).sample()


@pytest.mark.parametrize("architecture", ["qwen3", "qwen2", "llama"])  # qwen2 has biases
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@torch.no_grad()
def test_ready_layers_give_the_outputs_of_the_layers_and_their_adapters(
    architecture: str, dtype: Literal["float32", "bfloat16"], tmp_path: Path
) -> None:
    if dtype == "bfloat16" and not packs_weights():
        pytest.skip("this CPU has no packed products")
    folder = make_model_folder(tmp_path, architecture, scale=2.0)
    setup = BaseModelSetup(SFTConfig(model_name=str(folder), device="cpu", dtype=dtype))
    adapters = AdapterSet(setup)
    adapters.create("policy", new_lora_config(SFTConfig(lora_r=4), setup.causal_lm))
    torch.manual_seed(0)
    for value in adapters.parameters("policy").values():
        value.normal_(std=0.3)
    adapters.activate("policy")
    attention = setup.causal_lm.base_model.layers[0].self_attn
    for name in ("q_proj", "k_proj", "v_proj"):
        if getattr(attention, name).base_layer.bias is not None:
            getattr(attention, name).base_layer.bias.normal_()
    modules, x = (attention.q_proj, attention.k_proj, attention.v_proj), torch.randn(3, 1, 32)
    with setup.sampling(None):
        plain = apply_layers(modules, x)
    layers = DecodeLayers()
    with setup.sampling(layers):
        ours = apply_layers(modules, x)
    (ready,) = layers.ready.values()
    assert ready is not None, "not the plain way again"
    exact = 1e-5 if dtype == "float32" else 0.03
    for one, other in zip(ours, plain, strict=True):
        assert one.shape == other.shape
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=exact, atol=exact * float(other.abs().max()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sampling_with_ready_layers_draws_the_same_and_leaves_base_and_adapters_as_they_are(
    make_config: Callable[..., PPOConfig], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == "bfloat16" and not packs_weights():
        pytest.skip("this CPU has no packed products")
    setup = moved(make_config, dtype).setup
    before = {name: value.clone() for name, value in setup.causal_lm.state_dict().items()}
    used: list[DecodeLayers] = []

    def watched() -> DecodeLayers:
        used.append(DecodeLayers())
        return used[-1]

    monkeypatch.setattr(slot_sampler, "DecodeLayers", watched)
    ours = sample(setup)
    assert len(used) == 1
    *blocks, output = used[0].ready.values()
    assert len(blocks) == 4 * setup.text_config.num_hidden_layers
    assert None not in blocks
    assert (output is None) == (dtype == "float32"), "a copy of the same matrix would gain nothing"
    monkeypatch.setattr(slot_sampler, "PAYS_AFTER", PAYS_AFTER + 1)
    plain = sample(setup)
    assert len(used) == 1, "too short for copies"
    for one, other in zip(ours, plain, strict=True):
        if dtype == "float32":
            assert one.token_ids == other.token_ids
            assert one.logprobs == near(other.logprobs)
        else:  # sums in another order: a draw may differ, but the first token comes from the prompt
            assert one.token_ids[0] == other.token_ids[0]
            assert one.logprobs[0] == other.logprobs[0]
    for name, value in setup.causal_lm.state_dict().items():
        assert torch.equal(value, before[name]), name


@torch.no_grad()
def test_an_adapter_too_small_for_bfloat16_weights_still_acts(make_config: Callable[..., PPOConfig]) -> None:
    """Merged into the weights it would be rounded away."""
    setup = moved(make_config, "bfloat16").setup
    layer = setup.causal_lm.base_model.layers[0].self_attn.q_proj
    x = torch.tensor([1.0, -1.0]).repeat(16)
    layer.base_layer.weight.fill_(1)
    layer.lora_A["policy"].weight.zero_()[0] = 0.0005 * x
    layer.lora_B["policy"].weight.fill_(1)
    delta = layer.scaling["policy"] * layer.lora_B["policy"].weight @ layer.lora_A["policy"].weight
    assert torch.equal((1 + delta).bfloat16(), layer.base_layer.weight)
    with setup.sampling(DecodeLayers()):
        (y,) = apply_layers((layer,), x[None, None])
    torch.testing.assert_close(y[0, 0], delta @ x, rtol=0.02, atol=0)


def test_a_model_too_large_for_copies_is_used_as_it_is(
    make_config: Callable[..., PPOConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = moved(make_config, "float32").setup
    plain = sample(setup)
    first = 32 * (32 + 16 + 16) * 4
    monkeypatch.setattr("ppolm.kernels.decode_layers.COPY_BYTES", first)
    layers = DecodeLayers()
    monkeypatch.setattr(slot_sampler, "DecodeLayers", lambda: layers)
    bounded = sample(setup)
    assert [one is not None for one in layers.ready.values()] == [True] + [False] * (len(layers.ready) - 1)
    assert [one.token_ids for one in bounded] == [one.token_ids for one in plain]


def test_many_rows_in_bfloat16_are_left_to_the_product_that_is_faster(make_config: Callable[..., PPOConfig]) -> None:
    setup = moved(make_config, "bfloat16").setup
    modules = (setup.causal_lm.base_model.layers[0].self_attn.o_proj,)
    layers = DecodeLayers()
    assert (layers(modules, torch.ones(2, 1, 32)) is not None) == packs_weights()
    assert layers(modules, torch.ones(WIDE_ROWS, 1, 32)) is None


def test_packing_is_tried_and_a_torch_without_it_goes_on(
    make_config: Callable[..., PPOConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert packs_weights() in (True, False)
    monkeypatch.setattr("ppolm.kernels.decode_layers.packs_weights", lambda: False)
    assert len(sample(moved(make_config, "bfloat16").setup)) == 5


def test_nothing_is_packed_where_it_cannot_be_tried_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows cannot fork."""
    monkeypatch.delattr(os, "fork")
    assert packs_weights.__wrapped__() is False


def some_layers(dtype: torch.dtype, device: str = "cpu") -> list[Adapted]:
    """Three layers that read the same input: one with a bias, one without an adapter."""
    random = torch.Generator().manual_seed(0)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random).to(device)

    first = Adapted(matrix(24, 16).to(dtype), matrix(24).to(dtype), matrix(4, 16), matrix(24, 4), 0.5)
    second = Adapted(matrix(8, 16).to(dtype), None, matrix(2, 16), matrix(8, 2), 2.0)
    return [first, second, Adapted(matrix(8, 16).to(dtype), None)]


@pytest.mark.parametrize("form", [_Beside, _Apart])
def test_the_forms_of_other_devices_give_the_same_products(form: type[_Beside | _Apart]) -> None:
    for dtype, near_enough in ((torch.float32, 1e-6), (torch.bfloat16, 0.01)):
        layers, x = some_layers(dtype), torch.randn(5, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
        exact = linears(x.double(), [Adapted(*(_double(one) for one in vars(layer).values())) for layer in layers])
        for ours, plain in zip(form(layers, x)(x), exact, strict=True):
            assert ours.dtype == dtype
            off = (ours.double() - plain).norm() / plain.norm()
            assert off < near_enough


def _double(value: torch.Tensor | float | None) -> Any:
    return value.double() if isinstance(value, torch.Tensor) else value


def test_which_form_layers_take_depends_on_device_precision_and_room() -> None:
    half, full = torch.bfloat16, torch.float32
    layers, x = some_layers(half, "meta"), torch.empty(3, 16, dtype=half, device="meta")
    assert _kind(layers, x, fits=True) is _Beside
    assert _kind(layers, x, fits=False) is _Apart, "A and B are still converted once, not for every token"
    assert _kind(layers[2:], x, fits=True) is None, "it would be a plain copy"
    assert _kind(some_layers(full, "meta"), x.to(full), fits=True) is _Merged
    assert _kind(some_layers(full, "meta"), x.to(full), fits=False) is None
