"""The estimate counts what each of several processes holds, passes as large as a device reads, and free memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from ppolm.base_setup import device as device_module
from ppolm.base_setup.device import SCORING_TIMES, free_memory, memory_size
from ppolm.config import PPOConfig
from ppolm.estimate import estimate
from ppolm.estimate.memory import ONE, Devices, Lengths, Memory, base_size, step_memory
from ppolm.estimate.model_shape import ModelShape, shape_of
from tests.conftest import PROMPTS

MakeConfig = Callable[..., PPOConfig]
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
EIGHT_BILLION: dict[str, Any] = {"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32}
EIGHT_BILLION |= {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936}


@pytest.fixture
def config(make_config: MakeConfig) -> PPOConfig:
    return make_config(batch_size=32, minibatch_size=16, max_new_tokens=200, microbatch_tokens=2048, lora_r=16)


@pytest.fixture
def shape(config: PPOConfig) -> ModelShape:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(Qwen3Config(**EIGHT_BILLION, tie_word_embeddings=False))
    return shape_of(model, config)


def memory(shape: ModelShape, config: PPOConfig, devices: Devices = ONE, device: torch.device = CUDA) -> Memory:
    return step_memory(shape, config, Lengths(500, 300.0), torch.bfloat16, 3, device, None, devices)


def test_a_device_scores_with_larger_passes_than_it_trains_with(shape: ModelShape, config: PPOConfig) -> None:
    few = dataclasses.replace(config, microbatch_tokens=1024)
    logits = memory(shape, dataclasses.replace(config, microbatch_tokens=1, max_new_tokens=1), device=CPU).scoring
    assert logits < memory(shape, few, device=CPU).scoring
    once = memory(shape, dataclasses.replace(few, microbatch_tokens=1024 * SCORING_TIMES), device=CPU)
    assert memory(shape, few).scoring == pytest.approx(once.scoring / 2, rel=0.2), "states are half as wide on a GPU"


def test_several_processes_share_the_activations_and_each_has_the_base(shape: ModelShape, config: PPOConfig) -> None:
    one, four = memory(shape, config), memory(shape, config, Devices(4))
    assert (four.base, four.adapters) == (one.base, one.adapters)
    assert four.generation < one.generation
    assert four.training < one.training
    assert four.scoring < one.scoring


def test_a_sharded_base_is_divided_but_for_embeddings_and_two_whole_blocks(
    shape: ModelShape, config: PPOConfig
) -> None:
    blocks, each = shape.layers * shape.block_weights, shape.block_weights
    rest = shape.parameters - blocks
    found = base_size(shape, config, torch.bfloat16, Devices(8, sharded=True))
    assert found == pytest.approx(2 * (blocks / 8 + rest + 2 * each), rel=1e-6)
    assert base_size(shape, config, torch.bfloat16, Devices(8)) == 2 * shape.parameters


def test_sampling_here_needs_the_whole_base_and_servers_need_nothing_here(shape: ModelShape, config: PPOConfig) -> None:
    devices = Devices(8, sharded=True)
    served = dataclasses.replace(config, engine="vllm", engine_url=("http://server:8000",))
    here, there = memory(shape, config, devices), memory(shape, served, devices)
    assert there.generation == 0
    assert here.base + here.generation > 2 * shape.parameters
    assert there.peak < 0.7 * here.peak


def test_the_estimate_asks_the_launcher_how_many_processes_there_are(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "machine_free", lambda: 8 * 2**30)
    alone = estimate(make_config(batch_size=8), PROMPTS)
    assert alone.available == 8 * 2**30
    assert "on cpu, GiB" in alone.text(10.0)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    found = estimate(make_config(batch_size=8), PROMPTS)
    assert found.processes == 4
    assert found.available == 4 * 2**30, "two processes on this machine share its memory"
    assert found.memory.training < alone.memory.training
    assert "on cpu, in each of 4 processes, GiB" in found.text(10.0)
    assert "of 4.0 free" in found.text(10.0)


def test_free_memory_is_known_and_less_than_all() -> None:
    free, size = free_memory(CPU), memory_size(CPU)
    assert free is None or size is None or 0 < free < size


def test_prompts_of_different_lengths_are_read_in_passes_of_their_own_on_a_cpu_and_together_on_a_device(
    shape: ModelShape, config: PPOConfig
) -> None:
    config = dataclasses.replace(config, microbatch_tokens=100_000, minibatch_size=16, max_new_tokens=10)
    known = Lengths(500, 300.0, (100,) * 50 + (500,) * 50)
    assert sorted(known.widths(4, 10)) == [110, 110, 510, 510]

    def training(lengths: Lengths, device: torch.device, **changes: Any) -> int:
        changed = dataclasses.replace(config, **changes)
        return step_memory(shape, changed, lengths, torch.float32, 3, device).training

    few = training(Lengths(500, 500.0), CPU, minibatch_size=8)
    assert training(known, CPU) == pytest.approx(few, rel=0.01), "the eight long ones are a pass of their own"
    guessed = training(Lengths(500, 300.0), CPU)
    assert guessed > 1.15 * few
    shared = training(dataclasses.replace(known, mean=300.0), CPU, samples_per_prompt=2)
    assert shared == training(Lengths(500, 300.0), CPU, samples_per_prompt=2)
