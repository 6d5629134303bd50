"""What counts as rounding is measured on the model: a deep one is not refused for it, and mistakes in it are seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

from ppolm.base_setup import BaseModelSetup
from ppolm.base_setup.capabilities import FAST_PATHS, check_padding
from ppolm.base_setup.trial_text import plain_logits, states_of
from ppolm.config import SFTConfig
from ppolm.errors import ModelError
from ppolm.kernels.rounding import EXACT, ROUGH, Rounding, disagreement
from tests.tiny_models import make_tokenizer


@pytest.fixture(scope="module")
def deep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with 24 blocks and large weights: what bfloat16 rounds off grows to a fifth of its logits."""
    folder = tmp_path_factory.mktemp("deep")
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=24, intermediate_size=64,
        vocab_size=259, max_position_embeddings=128, eos_token_id=1, bos_token_id=2, initializer_range=0.3,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def deep(deep_folder: Path) -> BaseModelSetup:
    return BaseModelSetup(SFTConfig(model_name=str(deep_folder), device="cpu", dtype="bfloat16"))


def test_a_deep_model_in_bfloat16_is_trained_with_all_fast_paths(deep: BaseModelSetup) -> None:
    """It was called "not causal", or ran without fast paths, where the CPU's products depend on the batch."""
    exact = BaseModelSetup(SFTConfig(model_name=deep.name, device="cpu", dtype="float32"))
    exact.causal_lm.to(torch.bfloat16).to(torch.float32)  # the same weights, computed without rounding
    off = disagreement(plain_logits(exact, deep.trial.items), deep.trial.logits)
    assert off > ROUGH, "this model does not show what the test is about"
    assert set(deep.capabilities.on) == set(FAST_PATHS), str(deep.capabilities)
    assert deep.rounding.mean > ROUGH


def test_in_float32_nothing_is_measured_and_the_limit_stays_strict(deep_folder: Path) -> None:
    exact = BaseModelSetup(SFTConfig(model_name=str(deep_folder), device="cpu", dtype="float32"))
    assert exact.rounding == Rounding(EXACT, EXACT)


def test_the_limits_of_a_model_are_the_same_every_time(deep: BaseModelSetup) -> None:
    again = BaseModelSetup(SFTConfig(model_name=deep.name, device="cpu", dtype="bfloat16"))
    assert again.rounding == deep.rounding


def seen_through(setup: BaseModelSetup, change: Any) -> str | None:
    """What a wrong computation is refused for: ``change`` is made to the output of a block in the middle."""
    block = setup.block_list[12]
    handle = block.register_forward_hook(lambda _, given, output: change(given[0], output))
    try:
        return setup.rounding.refusal(plain_logits(setup, setup.trial.items), setup.trial.logits)
    finally:
        handle.remove()


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(lambda given, _: given, id="a block is left out"),
        pytest.param(lambda _, output: output.roll(1, dims=1), id="states one token late"),
        pytest.param(lambda given, output: 2 * output - given, id="a block counts twice"),
        pytest.param(lambda _, output: output.flip(-1), id="states in another order"),
    ],
)
def test_mistakes_are_still_seen_where_the_limit_is_wide(deep: BaseModelSetup, mistake: Any) -> None:
    assert "is rounding" in str(seen_through(deep, mistake))


def test_one_wrong_token_is_enough(deep: BaseModelSetup) -> None:
    logits = deep.project_all(states_of(deep, deep.trial.padded(deep)))
    assert deep.rounding.refusal(logits, deep.trial.logits) is None
    logits[7] = logits[3]
    assert "numbers off by" in str(deep.rounding.refusal(logits, deep.trial.logits))


def test_a_model_that_sees_its_padding_is_refused_all_the_same(deep: BaseModelSetup) -> None:
    blocks = deep.blocks

    def with_padding(padded: bool = False, **inputs: Any) -> Any:
        output = blocks(padded=padded, **inputs)
        states: Tensor = output.last_hidden_state
        output.last_hidden_state = 0.5 * (states + states.mean(1, keepdim=True))
        return output

    deep.blocks = with_padding  # type: ignore[method-assign]
    with pytest.raises(ModelError, match="it is not causal"):
        check_padding(deep, deep.trial)
