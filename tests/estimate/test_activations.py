"""The counted activations of a pass with gradients are what torch allocates, with and without checkpointing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MixtralConfig,
    PreTrainedConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from ppolm.base_setup.activation_memory import Sizes
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig
from ppolm.estimate.memory import Lengths, step_memory
from ppolm.estimate.model_shape import read_shape
from tests.peak_memory import peak_memory
from tests.tiny_models import make_tokenizer

MakeConfig = Callable[..., PPOConfig]
PROMPT, RESPONSE, ROWS = 60, 100, 4
SHAPE: dict[str, Any] = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "head_dim": 64}
SHAPE |= {"num_key_value_heads": 1, "intermediate_size": 512, "vocab_size": 259, "max_position_embeddings": 256}
SHAPE |= {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
KINDS: dict[str, type[PreTrainedConfig]] = {"qwen3": Qwen3Config, "llama": LlamaConfig}
UNFUSED = ("fused_blocks", "fused_adapters")
EXPERTS: dict[str, tuple[type[PreTrainedConfig], dict[str, int]]] = {
    "mixtral": (MixtralConfig, {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen3_moe": (Qwen3MoeConfig, {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 128}),
}


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model large enough for activations to outweigh the gradients of its adapters."""
    return save_model(KINDS[request.param](**SHAPE), tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module", params=EXPERTS)
def routed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same with a few experts for each token instead of a feed-forward layer."""
    kind, more = EXPERTS[request.param]
    return save_model(kind(**(SHAPE | more)), tmp_path_factory.mktemp(request.param))


def save_model(config: PreTrainedConfig, path: Path) -> str:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return str(path)


def train_once(models: Models, role: str) -> None:
    """The gradient of one microbatch, as an update computes it."""
    random = torch.Generator().manual_seed(0)
    texts = [[torch.randint(3, 259, (size,), generator=random) for _ in range(ROWS)] for size in (PROMPT, RESPONSE)]
    sequences = TokenSequences(*texts)
    model = models.policy if role == "policy" else models.value
    with model.active(trainable=True):
        (batch,) = model.microbatches(sequences, 10**6)
        if role == "policy":
            models.policy.token_logprobs(batch, 1.0, "measure")[0].sum().backward()
        else:
            models.value.token_values(batch).sum().backward()
    for value in model.parameters().values():
        value.grad = None


@pytest.mark.parametrize("asked", ["off", "on"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dtype": "bfloat16"},
        {"dtype": "float16"},
        {"trainable_layers": 3},
        {"without": UNFUSED},
        {"without": UNFUSED, "dtype": "bfloat16"},
    ],
    ids=str,
)
def test_counted_activations_are_within_a_quarter_of_what_torch_allocates(
    folder: str, settings: dict[str, Any], asked: str, make_config: MakeConfig
) -> None:
    check_peak(folder, settings, asked, make_config)


@pytest.mark.parametrize("asked", ["off", "on"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"dtype": "bfloat16"}, {"trainable_layers": 3}, {"lora_target_modules": ("q_proj", "v_proj")}],
    ids=str,
)
def test_experts_are_counted_with_what_each_token_keeps_and_with_copies_that_hold_their_adapters(
    routed: str, settings: dict[str, Any], asked: str, make_config: MakeConfig
) -> None:
    check_peak(routed, settings, asked, make_config)


def check_peak(folder: str, settings: dict[str, Any], asked: str, make_config: MakeConfig) -> None:
    """The counted size of a pass with gradients is what is allocated, for policy and value."""
    config = make_config(
        model_name=folder,
        gradient_checkpointing=asked,
        batch_size=ROWS,
        minibatch_size=ROWS,
        max_new_tokens=RESPONSE,
        microbatch_tokens=10**6,
        **settings,
    )
    models = setup_models(config)
    found = step_memory(read_shape(config), config, Lengths(PROMPT, PROMPT), models.setup.dtype, adapters=2)
    assert found.recomputes == (asked == "on")
    for role in ("policy", "value"):
        train_once(models, role)  # what is allocated once and kept, such as the memory for converted weights
        measured = peak_memory(partial(train_once, models, role))
        assert found.training == pytest.approx(measured, rel=0.25), role


def test_checkpointing_divides_what_a_deep_model_keeps(folder: str, make_config: MakeConfig) -> None:
    block, sizes = read_shape(make_config(model_name=folder)).block, Sizes(weights=2, states=2)
    whole, again = (block.per_token(36, sizes, recomputes) for recomputes in (False, True))
    assert again < whole / 8
    assert block.per_token(1, sizes, True) > block.per_token(1, sizes, False), "with one block there is nothing to gain"


def test_what_is_not_wanted_in_the_last_block_is_not_kept(folder: str, make_config: MakeConfig) -> None:
    block, sizes = read_shape(make_config(model_name=folder)).block, Sizes(weights=4, states=4)
    assert block.training(2, 100, 100, sizes, False) == 100 * block.per_token(2, sizes)
    assert block.training(2, 100, 10, sizes, False) < block.training(2, 100, 100, sizes, False)


def test_the_folder_of_a_model_is_read_without_its_weights(folder: str, make_config: MakeConfig) -> None:
    assert read_shape(make_config(model_name=folder)).block.normed == ("qwen3" in Path(folder).name)
