"""When a training does not fit, the estimate names changes that make it fit, those that cost least first."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from ppolm.config import PPOConfig
from ppolm.estimate import estimate
from ppolm.estimate.advice import Change, advice_text, advise, changes, options
from ppolm.estimate.memory import Lengths, Memory, step_memory
from ppolm.estimate.model_shape import ModelShape, shape_of
from tests.conftest import PROMPTS

MakeConfig = Callable[..., PPOConfig]
GIB = 2**30
CUDA = torch.device("cuda")
ORDER = [
    "rollout_tokens",
    "microbatch_tokens",
    "gradient_checkpointing",
    "shard_base",
    "dtype",
    "base_bits",
    "trainable_layers",
]
LENGTHS = Lengths(500, 300.0)
EIGHT_BILLION: dict[str, Any] = {"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32}
EIGHT_BILLION |= {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936}


def shape_for(config: PPOConfig) -> ModelShape:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(Qwen3Config(**EIGHT_BILLION, tie_word_embeddings=False))
    return shape_of(model, config)


class Case:
    """An 8B model on a GPU with some memory."""

    def __init__(self, config: PPOConfig, gib: float) -> None:
        self.config, self.available = config, int(gib * GIB)
        self.shapes: dict[Any, ModelShape] = {}
        self.shape = self.of(config)
        self.memory = self.measure(config)

    def of(self, config: PPOConfig) -> ModelShape:
        key = (config.trainable_layers, config.base_bits)
        if key not in self.shapes:
            self.shapes[key] = shape_for(config)
        return self.shapes[key]

    def measure(self, config: PPOConfig) -> Memory:
        dtype = torch.bfloat16 if config.dtype == "auto" else getattr(torch, config.dtype)
        return step_memory(self.of(config), config, LENGTHS, dtype, 3, CUDA, self.available)

    def advice(self) -> list[Change]:
        width = LENGTHS.longest + self.config.max_new_tokens
        half: Any = "bfloat16" if self.config.dtype == "float32" else None
        return advise(
            self.config, self.memory, self.available, self.measure, options(self.config, self.shape, width, half)
        )


def big(make_config: MakeConfig, **changes: Any) -> PPOConfig:
    return make_config(**{"lora_r": 16, "batch_size": 32, "minibatch_size": 8, "max_new_tokens": 200} | changes)


def test_nothing_is_advised_where_it_fits_or_nothing_is_known(make_config: MakeConfig) -> None:
    case = Case(big(make_config), gib=80)
    assert not case.memory.recomputes
    assert case.advice() == []
    assert advise(case.config, case.memory, None, case.measure, []) == []


def test_auto_makes_it_fit_and_names_what_would_do_without(make_config: MakeConfig) -> None:
    case = Case(big(make_config, rollout_tokens=4096), gib=27)
    assert case.memory.recomputes
    assert case.memory.peak <= case.available
    kept = dataclasses.replace(case.config, gradient_checkpointing="off")
    assert case.measure(kept).peak > case.available
    (change,) = case.advice()
    assert change.name == "microbatch_tokens"
    assert case.measure(dataclasses.replace(kept, microbatch_tokens=int(change.value))).peak <= case.available


@pytest.mark.parametrize(
    ("gib", "changes"),
    [
        (40, {"gradient_checkpointing": "off", "microbatch_tokens": 8192}),
        (24, {}),
        (24, {"dtype": "float32"}),
        (11, {}),
    ],
)
def test_what_is_advised_is_in_the_order_of_its_cost_and_makes_it_fit(
    gib: float, changes: dict[str, Any], make_config: MakeConfig
) -> None:
    case = Case(big(make_config, **changes), gib)
    assert case.memory.peak > case.available
    found = case.advice()
    places = [ORDER.index(change.name) for change in found]
    assert places == sorted(places)
    assert found[-1].peak <= case.available
    config, before = case.config, case.memory.peak
    for change in found:
        given: dict[str, Any] = {change.name: change.value}
        config = dataclasses.replace(config, **given)
        assert case.measure(config).peak == change.peak < before
        before = change.peak
    assert all(change.peak > case.available for change in found[:-1]), "nothing is changed beyond what is needed"


def test_a_model_that_is_too_large_is_said_to_be(make_config: MakeConfig) -> None:
    case = Case(big(make_config), gib=4)
    found = case.advice()
    assert found[-1].peak > case.available
    assert "Even that does not fit" in advice_text(found, case.available)[-1]
    assert "no setting saves enough" in advice_text([], case.available)[0]


def test_a_loaded_adapter_keeps_its_layers(make_config: MakeConfig) -> None:
    config = big(make_config)
    shape = shape_for(config)
    names = {one.name: one.values for one in options(dataclasses.replace(config, sft_adapter="x"), shape, 700, None)}
    assert names["trainable_layers"] == names["dtype"] == []
    assert all(int(value) >= 700 for value in names["microbatch_tokens"])
    assert list(names) == ORDER


def test_a_budget_is_lowered_no_further_than_needed(make_config: MakeConfig) -> None:
    config = make_config(microbatch_tokens=4096)

    def measure(changed: PPOConfig) -> Memory:
        return Memory(0, 0, 0, 0, 0, 0, changed.microbatch_tokens)

    option = [one for one in options(config, shape_for(config), 100, None) if one.name == "microbatch_tokens"]
    (change,) = changes(config, 1200, measure, option)
    assert change.value == 1024
    assert change.flag == "--microbatch-tokens 1024"


def test_the_command_says_what_to_change(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["ppolm.estimate.estimate"]  # the package exports the function of the same name
    monkeypatch.setattr(module, "free_memory", lambda _: 2**20)
    text = estimate(make_config(), PROMPTS).text(gflops=10)
    assert "It does not fit" in text
    monkeypatch.setattr(module, "free_memory", lambda _: 2**50)
    text = estimate(make_config(), PROMPTS).text(gflops=10)
    assert "on cpu, GiB" in text
    assert "fit" not in text
