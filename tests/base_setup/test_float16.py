"""float16 is storage: states, products and gradients of training are float32, so nothing overflows or vanishes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from ppolm.base_setup.base_setup import BaseModelSetup
from ppolm.base_setup.device import state_precision
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig
from ppolm.errors import ModelError
from ppolm.kernels.fused_ops import gated, rms_norm
from ppolm.kernels.lora_linear import Adapted, linears
from ppolm.kernels.products import ComputeMode, computing
from ppolm.ppo_trainer import PPOTrainer
from tests.conftest import PROMPTS, spread
from tests.tiny_models import make_model_folder, make_tokenizer

MakeConfig = Callable[..., PPOConfig]
SEQUENCES = TokenSequences([torch.arange(3, 12), torch.arange(5, 9)], [torch.arange(20, 27), torch.arange(40, 44)])


def rounded_folder(folder: Path, model_folder: Path) -> str:
    """The same model with weights that float16 holds exactly."""
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float16).float()
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


def gradients(models: Models, scale: float) -> list[Tensor]:
    random = torch.Generator().manual_seed(1)
    for value in models.policy.parameters().values():
        value.data.normal_(std=0.1, generator=random)
    with models.policy.active(trainable=True):
        (batch,) = models.policy.microbatches(SEQUENCES, 10**6)
        (models.policy.token_logprobs(batch, 1.0)[0].sum() * scale).backward()
    return [value.grad for value in models.policy.parameters().values() if value.grad is not None]


@pytest.mark.parametrize("asked", ["off", "on"])
def test_gradients_are_those_of_float32_however_small(
    asked: str, make_config: MakeConfig, model_folder: Path, tmp_path: Path
) -> None:
    folder = rounded_folder(tmp_path / "rounded", model_folder)
    narrow, wide = (
        setup_models(make_config(model_name=folder, dtype=dtype, gradient_checkpointing=asked))
        for dtype in ("float16", "float32")
    )
    assert narrow.setup.precision == {"weights": "float16", "products": "float32"}
    assert narrow.setup.state_dtype == torch.float32
    assert {value.dtype for value in narrow.policy.parameters().values()} == {torch.float32}
    tiny = 1e-12  # far below the smallest float16, 6e-8
    for ours, plain in zip(gradients(narrow, tiny), gradients(wide, tiny), strict=True):
        # What blocks keep for the backward pass is rounded to the precision of the weights.
        assert plain.abs().max() < 6e-8
        assert float((ours - plain).norm()) <= 5e-3 * float(plain.norm())


def test_ppo_trains_and_scores_its_policy_rather_than_believing_the_sampler(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(dtype="float16"), reward=spread)
    before = [value.clone() for value in trainer.models.policy.parameters().values()]
    for _ in range(2):
        results = trainer.ppo_step(PROMPTS[:4])
        assert trainer.attributor.recomputes
    assert all(value.isfinite().all() for value in results["sa_pairs"].columns.values())
    after = trainer.models.policy.parameters().values()
    assert any(not torch.equal(*pair) for pair in zip(before, after, strict=True))
    assert trainer.model_trainer.metrics()["skipped_updates"] == 0


@pytest.mark.parametrize("rows", [3, 200])
def test_products_of_large_numbers_stay_finite_in_sampling_and_in_training(rows: int) -> None:
    layer = Adapted(torch.full((8, 16), 3e4, dtype=torch.float16), None)
    x = torch.full((rows, 16), 1e5)
    with computing(ComputeMode(torch.float32, sampling=True)):
        (sampled,) = linears(x, [layer])
    with computing(ComputeMode(torch.float32)):
        (scored,) = linears(x, [layer])
    assert sampled.isfinite().all()
    torch.testing.assert_close(scored, torch.full((rows, 8), 16 * 3e4 * 1e5), rtol=1e-3, atol=0)


def test_what_is_kept_of_large_states_for_the_backward_pass_stays_finite() -> None:
    x = torch.full((2, 8), 1e6, requires_grad=True)
    normed = rms_norm(x, torch.ones(8, dtype=torch.float16), 1e-6)
    (inner,) = linears(normed * 1e6, [Adapted(torch.ones(4, 8, dtype=torch.float16), None)])
    gated(inner, inner, torch.float16).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_a_model_that_overflows_is_refused_with_what_to_set(
    make_config: MakeConfig, model_folder: Path, tmp_path: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    model.get_output_embeddings().weight.data.fill_(4e4)
    model.model.norm.weight.data.fill_(100.0)
    model.save_pretrained(tmp_path / "large")
    make_tokenizer().save_pretrained(tmp_path / "large")
    with pytest.raises(ModelError, match=r"not finite in float16\. Set dtype: float32"):
        BaseModelSetup(make_config(model_name=str(tmp_path / "large"), dtype="float16"))


def test_a_model_with_other_blocks_says_that_it_computes_in_float16(
    make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_model_folder(tmp_path / "gpt2", "gpt2")
    setup = BaseModelSetup(make_config(model_name=str(folder), dtype="float16"))
    assert setup.state_dtype == torch.float16
    assert any("computes in float16 throughout" in message for message in caplog.messages)
    assert logging.getLevelName(caplog.records[0].levelno) == "WARNING"


@pytest.mark.parametrize("place", ["cpu", "cuda", "mps"])
def test_states_are_wide_where_weights_are_too_narrow_for_them(place: str) -> None:
    device = torch.device(place)
    assert state_precision(torch.float16, device, fused=True) == torch.float32
    assert state_precision(torch.bfloat16, device, fused=True) == (torch.float32 if place == "cpu" else torch.bfloat16)
    assert state_precision(torch.float16, device, fused=False) == torch.float16


def test_dropout_of_an_adapter_loses_no_small_gradient(
    make_config: MakeConfig, model_folder: Path, tmp_path: Path
) -> None:
    folder = rounded_folder(tmp_path / "rounded", model_folder)
    found = []
    for dtype in ("float16", "float32"):
        models = setup_models(make_config(model_name=folder, dtype=dtype, lora_dropout=0.3))
        models.setup.causal_lm.train()
        torch.manual_seed(0)
        found.append(gradients(models, 1e-12))
    for ours, plain in zip(*found, strict=True):
        assert float((ours - plain).norm()) <= 5e-3 * float(plain.norm())
