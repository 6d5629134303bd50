"""Sizes, operations and bytes of tiny models by hand: dense, with experts, tied, grouped, in 16 and 32 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig, PreTrainedConfig, Qwen3MoeConfig

from ppolm.config import PPOConfig
from ppolm.estimate import Work
from ppolm.estimate.memory import ONE, Devices, Lengths, base_size
from ppolm.estimate.model_shape import ModelShape, shape_of
from ppolm.estimate.packed_weights import NF4, packed_weights
from ppolm.planning.plan import Case
from ppolm.planning.sampled import block_kernels, rewritten_bytes, sampled_by
from ppolm.planning.serving import Pool
from ppolm.planning.step_time import Rate, Speed

MakeConfig = Callable[..., PPOConfig]
SIZES: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 2}
SIZES |= {"num_key_value_heads": 2, "intermediate_size": 16, "vocab_size": 10, "tie_word_embeddings": True}
SPEED = Speed(Rate(1e10, 1e10), Rate(1e10, 1e10), 1e10, 0.0, 0.0, 1e9, 1e-3)


@dataclass(frozen=True)
class Known:
    """A model and its figures: q + k + v + o and gate + up + down, or a router and as many of these as experts."""

    config: PreTrainedConfig
    parameters: int
    stored: int
    active: int
    together: float
    """Weights of a block that two tokens read."""


GROUPED = 64 + 32 + 32 + 64
FORWARD = 3 * 8 * 16
KNOWN = {
    "dense, grouped, tied": Known(
        LlamaConfig(**SIZES),
        *(2 * (GROUPED + FORWARD + 16) + 8 + 80, GROUPED + FORWARD, GROUPED + FORWARD, GROUPED + FORWARD),
    ),
    "untied": Known(
        LlamaConfig(**SIZES | {"tie_word_embeddings": False}),
        *(2 * (GROUPED + FORWARD + 16) + 8 + 160, GROUPED + FORWARD, GROUPED + FORWARD, GROUPED + FORWARD),
    ),
    "as many keys as queries": Known(
        LlamaConfig(**SIZES | {"num_key_value_heads": 4}),
        *(2 * (256 + FORWARD + 16) + 8 + 80, 256 + FORWARD, 256 + FORWARD, 256 + FORWARD),
    ),
    "2 of 4 experts": Known(
        MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2),
        2 * (GROUPED + 32 + 4 * FORWARD + 16) + 8 + 80,
        GROUPED + 32 + 4 * FORWARD,
        GROUPED + 32 + 2 * FORWARD,
        GROUPED + 32 + 3 * FORWARD,  # the second token meets half of the rest: 4 · (1 − (1 − 2/4)²)
    ),
    "1 of 2 experts, in every second block": Known(
        Qwen3MoeConfig(
            **SIZES, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16, mlp_only_layers=[0]
        ),  # the mean of a plain block and one with a router of 16 weights and norms of queries and keys
        (2 * GROUPED + FORWARD + 16 + 2 * FORWARD) + 2 * (16 + 4) + 8 + 80,
        GROUPED + 8 + 3 * FORWARD // 2,
        GROUPED + 8 + FORWARD,
        GROUPED + 8 + FORWARD / 2 + FORWARD * 0.75,
    ),
}


@pytest.fixture(params=KNOWN)
def known(request: pytest.FixtureRequest) -> Known:
    return KNOWN[request.param]


@pytest.fixture
def config(make_config: MakeConfig) -> PPOConfig:
    return make_config(lora_r=2, lora_target_modules=("q_proj",), batch_size=2, minibatch_size=2, max_new_tokens=2)


def shape_for(model: PreTrainedConfig, config: PPOConfig) -> ModelShape:
    with torch.device("meta"):
        return shape_of(AutoModelForCausalLM.from_config(model), config)


def test_weights_are_those_of_the_matrices(known: Known, config: PPOConfig) -> None:
    shape = shape_for(known.config, config)
    assert shape.parameters == known.parameters
    assert (shape.weights.stored, shape.weights.active) == (known.stored, known.active)
    assert (shape.weights.read(1), shape.weights.read(2)) == (known.active, known.together)
    assert shape.weights.read(10**6) == known.stored


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_base_is_stored_whole_and_sharded_with_all_its_experts(
    known: Known, dtype: torch.dtype, config: PPOConfig
) -> None:
    shape = shape_for(known.config, config)
    assert base_size(shape, config, dtype, ONE) == dtype.itemsize * known.parameters
    rest = known.parameters - 2 * known.stored
    shared = base_size(shape, config, dtype, Devices(8, sharded=True))
    assert shared == dtype.itemsize * (rest + 2 * known.stored), "two blocks are whole at a time, and there are two"


def test_operations_are_those_of_the_weights_that_a_token_uses(known: Known, config: PPOConfig) -> None:
    work = Work(shape_for(known.config, config), prompt=3, response=2, batch=2)
    adapter = 2 * (8 + 8)
    products = 2 * 10 * 2 * (known.active + adapter)
    attention = 2 * 4 * 8 * (4 * (3 + 1) + 6 * 1.5)
    assert work.generation() == pytest.approx(products + attention + 2 * 8 * 10 * 4)


def case(shape: ModelShape, config: PPOConfig, dtype: torch.dtype, pool: Pool | None = None) -> Case:
    return Case(config, shape, Lengths(3, 3.0), 2.0, dtype, torch.device("cpu"), None, ONE, SPEED, 0, pool)


def test_a_token_reads_the_weights_that_its_rows_use_and_servers_read_16_bits(known: Known, config: PPOConfig) -> None:
    shape = shape_for(known.config, config)
    work = Work(shape, 3, 2, 2)
    kv = known.config.num_key_value_heads * 2
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        found = sampled_by(case(shape, config, dtype), work, None)
        assert found.weights == pytest.approx(size * (2 * known.together + 8 * 10))
        assert found.cached == 2 * 2 * kv * (3 + 1) * size
        assert found.block == pytest.approx(2 * (known.active + 32) + 4 * 8 * 4)
        copied = sampled_by(case(shape, config.changed(engine="mlx", lora_r=2), dtype), work, None)
        assert copied.weights == found.weights, "a second copy of the base is not read"
        served = sampled_by(case(shape, config, dtype, Pool(1, "x", None, SPEED)), work, None)
        assert served.weights == pytest.approx(2 * (2 * known.together + 8 * 10))
        assert served.cached == 2 * 2 * kv * (3 + 1) * 2


def test_experts_with_adapters_are_all_read_and_copied_for_every_token(make_config: MakeConfig) -> None:
    config = make_config(lora_r=2, batch_size=2, minibatch_size=2, max_new_tokens=2, lora_dropout=0.0)
    model = KNOWN["2 of 4 experts"].config
    shape = shape_for(model, config)
    assert shape.block.merged == 4 * FORWARD + 32, "the router is adapted in the same way"
    again = rewritten_bytes(shape, config, torch.bfloat16)
    assert again == 2 * 2 * 2 * (4 * FORWARD + 32), "two blocks, 2 bytes, written and read"


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, NF4),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5 + 4 / 64),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 0.5 + 2.5 / 128),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 0.5 + 2.5 / 64),
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_method": "mxfp4"}, 0.5 + 1 / 32),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8}}}}, 1 + 3 / 128),
        ({"quant_method": "quanto", "weights": "int4"}, 0.5 + 2.5 / 128),
        ({"quant_method": "aqlm"}, None),
        ({"quant_method": "gptq", "bits": "?", "group_size": None}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_base_that_its_authors_packed_has_the_size_that_its_configuration_says(
    given: dict[str, Any], size: float | None, config: PPOConfig
) -> None:
    plain = KNOWN["dense, grouped, tied"]
    packed = LlamaConfig(**SIZES, quantization_config=given)
    found = packed_weights(packed)
    assert found is not None
    assert found.size == size
    shape = shape_for(packed, config)
    assert not shape.block.fused
    rest = plain.parameters - 2 * plain.stored
    each = 2 if size is None else size
    assert base_size(shape, config, torch.bfloat16) == round(2 * plain.stored * each) + 2 * rest
    assert packed_weights(plain.config) is None


def test_unpacking_and_paths_that_are_off_cost_kernels_and_bytes(make_config: MakeConfig) -> None:
    model, usual = KNOWN["dense, grouped, tied"].config, make_config(max_new_tokens=8)
    kernels = [
        block_kernels(shape_for(model, config), config)
        for config in (
            usual,
            usual.changed(without=("decode_matrices",)),
            usual.changed(plain=True),
            usual.changed(base_bits=4),
        )
    ]
    assert kernels == [31.5, 50.5, 100.5, 121.5]
    packed = usual.changed(base_bits=4)
    weights = GROUPED + FORWARD
    assert rewritten_bytes(shape_for(model, packed), packed, torch.bfloat16) == 2 * 2 * 2 * weights
    assert rewritten_bytes(shape_for(model, usual), usual, torch.bfloat16) == 0
    assert rewritten_bytes(shape_for(model, usual), usual, torch.bfloat16, converts=True) == 2 * 2 * 4 * weights
