"""Fused blocks, the last one computed only where needed, give the library's own outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import silu

from ppolm.base_setup import AdapterSet, new_lora_config
from ppolm.base_setup.base_setup import BaseModelSetup
from ppolm.base_setup.load_model import find_blocks
from ppolm.batches.packing import Answers, pack
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig, SFTConfig
from ppolm.kernels.fused_block import FusedBlock, fuse_blocks, unfuse_blocks
from ppolm.kernels.fused_ops import gated, log_sum_exp, rms_norm, rotate
from ppolm.ppo_trainer import PPOTrainer
from tests.closeness import assert_all_rounding, assert_rounding, near
from tests.conftest import PROMPTS
from tests.tiny_models import ARCHITECTURES, make_model_folder

ALIKE = ("qwen3", "qwen2", "llama")
"""The architectures under test whose blocks are of the common kind."""


def load(tmp_path: Path, architecture: str, **settings: Any) -> BaseModelSetup:
    folder = make_model_folder(tmp_path / architecture, architecture, scale=2.0)
    return BaseModelSetup(SFTConfig(model_name=str(folder), device="cpu", **settings))


def unfuse(setup: BaseModelSetup) -> None:
    """Restore the library's own blocks."""
    setup.last_block, setup.fused = None, False
    unfuse_blocks(find_blocks(setup.causal_lm)[1])


def plain_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def plain_rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


def angles(rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    turn = torch.rand(1, rows, 1, width // 2).double().repeat(1, 1, 1, 2)
    return turn.cos(), turn.sin()


@pytest.mark.parametrize(
    ("ours", "plain", "rest"),
    [
        pytest.param(rms_norm, plain_norm, lambda: (torch.randn(8).requires_grad_(), 1e-3), id="norm"),
        pytest.param(rotate, plain_rotate, lambda: [t.float() for t in angles(5, 8)], id="rotary"),
        pytest.param(
            lambda gate, up: gated(gate, up, torch.float32),
            lambda gate, up: silu(gate) * up,
            lambda: (torch.randn(2, 5, 3, 8).requires_grad_(),),
            id="gate",
        ),
    ],
)
def test_value_and_gradients_are_those_of_the_plain_formula(
    ours: Callable[..., torch.Tensor], plain: Callable[..., torch.Tensor], rest: Callable[[], Any]
) -> None:
    torch.manual_seed(0)
    x, others, above = torch.randn(2, 5, 3, 8, requires_grad=True), rest(), torch.randn(2, 5, 3, 8)
    inputs = [x, *(other for other in others if isinstance(other, torch.Tensor) and other.requires_grad)]
    values = [function(x, *others) for function in (ours, plain)]
    assert_rounding(values[0], values[1])
    with torch.no_grad():
        assert torch.equal(ours(x, *others), values[0])
    for mine, theirs in zip(*(torch.autograd.grad(value, inputs, above) for value in values), strict=True):
        assert_rounding(mine, theirs)


def test_log_sum_exp_is_torchs_even_of_very_large_and_very_small_numbers() -> None:
    x = torch.tensor([[0.0, 1.0, -3.0], [1e4, 1e4, 0.0], [-1e4, -1e4, -1e4], [5.0, float("-inf"), 5.0]])
    torch.testing.assert_close(log_sum_exp(x), torch.logsumexp(x, -1))
    assert log_sum_exp(torch.tensor([[float("nan"), 1.0]])).isnan()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_blocks_of_the_common_kind_are_recognised_and_others_left_alone(architecture: str, tmp_path: Path) -> None:
    setup = load(tmp_path, architecture)
    assert (setup.last_block is not None) == (architecture in ALIKE)
    assert isinstance(find_blocks(setup.causal_lm)[1][0].forward, FusedBlock) == (architecture in ALIKE)


@pytest.mark.parametrize("architecture", ALIKE)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("read", ["actions", "ends"])
def test_wanted_states_are_those_of_the_librarys_blocks(
    architecture: str, packed: bool, read: Any, tmp_path: Path
) -> None:
    setup = load(tmp_path, architecture)
    numbers = torch.arange(2, 22)
    items = [Answers(numbers[:7], (numbers[7:10], numbers[10:12])), Answers(numbers[12:15], (numbers[15:20],))]
    flat = [(item.prompt, answer) for item in items for answer in item.answers]
    place = (1000, setup.tokenizer.pad_id, setup.device)
    if packed:
        (batch,) = pack(items, *place, read)
    else:
        (batch,) = TokenSequences(*zip(*flat, strict=True)).microbatches(*place, read)
    positions, index = batch.wanted_positions()
    assert positions.shape[1] < batch.input_ids.shape[1]
    assert torch.equal(
        batch.input_ids.flatten()[batch.state_index], batch.input_ids.gather(1, positions).flatten()[index]
    )
    with torch.no_grad():
        ours = setup.wanted_states(batch.input_ids, batch)
        unfuse(setup)
        assert_rounding(ours, setup.wanted_states(batch.input_ids, batch))


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("architecture", ALIKE)
@pytest.mark.parametrize("changes", [{}, {"samples_per_prompt": 2, "trainable_layers": 1}])
def test_a_ppo_step_is_the_same_with_the_librarys_blocks(
    architecture: str, changes: dict[str, Any], make_config: Callable[..., PPOConfig], tmp_path: Path
) -> None:
    folder = make_model_folder(tmp_path / "model", architecture, scale=2.0)
    config = make_config(model_name=str(folder), reward=("model",), learning_rate=1e-4, **changes)
    ours, theirs = PPOTrainer(config), PPOTrainer(config)
    assert ours.models.setup.last_block is not None
    unfuse(theirs.models.setup)
    for _ in range(2):
        step, expected = (trainer.ppo_step(PROMPTS[: config.prompts_per_step]) for trainer in (ours, theirs))
        assert step["generated_texts"] == expected["generated_texts"]
        for name in ("logprob_policy", "logprob_ref", "value", "advantage"):
            pairs = (step["sa_pairs"].columns[name], expected["sa_pairs"].columns[name])
            assert_rounding(*pairs, what=name)
        for name in ("policy_grad_norm", "value_grad_norm"):
            assert step["metrics"][name] == near(expected["metrics"][name])


def test_norm_weights_of_a_fully_trained_model_have_gradients(tmp_path: Path) -> None:
    setup = load(tmp_path, "qwen3")
    setup.causal_lm.requires_grad_(True)
    grads = []
    for own in (True, False):
        setup.causal_lm.zero_grad()
        if not own:
            unfuse(setup)
        setup.hidden_states(torch.arange(3, 15).view(2, 6)).pow(2).sum().backward()
        grads.append({name: one.grad for name, one in setup.causal_lm.named_parameters() if "norm" in name})
    assert_all_rounding(grads[0], grads[1])


def test_in_bfloat16_it_is_no_further_from_float32_than_the_library(tmp_path: Path) -> None:
    exact = load(tmp_path, "qwen3", dtype="float32")
    ids = torch.arange(3, 23).view(2, 10)
    with torch.no_grad():
        truth = exact.hidden_states(ids)
        setup = load(tmp_path, "qwen3", dtype="bfloat16")
        ours = (setup.hidden_states(ids).float() - truth).abs().mean()
        unfuse(setup)
        theirs = (setup.hidden_states(ids).float() - truth).abs().mean()
    assert ours <= theirs


def test_gradients_in_bfloat16_are_those_of_float32_up_to_the_rounding_of_what_is_kept(tmp_path: Path) -> None:
    torch.manual_seed(0)
    exact, rough = (load(tmp_path, "qwen3", dtype=dtype) for dtype in ("float32", "bfloat16"))
    assert rough.state_dtype == torch.float32
    for mine, theirs in zip(exact.causal_lm.parameters(), rough.causal_lm.parameters(), strict=True):
        mine.data.copy_(theirs)  # the same weights, as rounded to bfloat16
    states, grads = torch.randn(2, 10, 32), []
    for setup in (exact, rough):
        inputs = states.clone().requires_grad_()
        hidden = setup.hidden_states(inputs)
        grads.append((hidden, *torch.autograd.grad((hidden * torch.linspace(-1, 1, 32)).sum(), inputs)))
    torch.testing.assert_close(grads[1][1], grads[0][1], rtol=0.05, atol=0.02 * float(grads[0][1].abs().max()))


@pytest.mark.parametrize("what", ["dropout", "everything trains"])
def test_layers_that_are_more_than_a_product_work_on_bfloat16_weights_too(what: str, tmp_path: Path) -> None:
    setup = load(tmp_path, "qwen3", dtype="bfloat16")
    if what == "dropout":
        config = SFTConfig(model_name="any", lora_r=2, lora_dropout=0.5)
        adapters = AdapterSet(setup)
        adapters.create("one", new_lora_config(config, setup.causal_lm))
        adapters.activate("one", trainable=True)
        adapters.model.train()
    else:
        setup.causal_lm.requires_grad_(True)
    setup.hidden_states(torch.arange(3, 15).view(2, 6)).sum().backward()
    trained = [one for one in setup.causal_lm.parameters() if one.requires_grad and one.dim() == 2]
    assert trained
    assert any(one.grad is not None and one.grad.abs().sum() > 0 for one in trained)


def test_a_model_that_only_looks_the_same_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = load(tmp_path, "llama")
    unfuse(setup)
    blocks: Any = find_blocks(setup.causal_lm)[1]
    other = blocks[0].mlp.act_fn
    blocks[0].mlp.act_fn = nn.GELU()
    assert fuse_blocks(setup.causal_lm, blocks) == "blocks have the usual parts but compute something else"
    blocks[0].mlp.act_fn = other
    monkeypatch.setattr(blocks[1].self_attn, "use_rope", False, raising=False)
    assert fuse_blocks(setup.causal_lm, blocks) == "blocks are not all alike"
    monkeypatch.undo()
    assert fuse_blocks(setup.causal_lm, blocks) is None
    assert isinstance(blocks[0].forward, FusedBlock)


def test_attention_that_takes_no_mask_of_ours_keeps_the_librarys_blocks(tmp_path: Path) -> None:
    setup = load(tmp_path, "qwen3")
    unfuse(setup)
    setup.causal_lm.set_attn_implementation("eager")
    assert fuse_blocks(setup.causal_lm, find_blocks(setup.causal_lm)[1]) == "attention is eager, not sdpa"
