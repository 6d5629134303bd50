"""Two models of different kinds in one process, used in turn or nested, compute what each computes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ppolm.base_setup import BaseModelSetup
from ppolm.config import PPOConfig, SFTConfig
from ppolm.kernels import products
from ppolm.kernels.decode_layers import DecodeLayers
from ppolm.kernels.products import ComputeMode, converted, current_mode
from ppolm.ppo_trainer import PPOTrainer
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]
KINDS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "plain": {"plain": True},
    "trunk": {"dtype": "bfloat16", "trainable_layers": 1, "samples_per_prompt": 2},
}
PAIRS = [("float32", "bfloat16"), ("plain", "bfloat16"), ("float32", "plain"), ("trunk", "float32")]


def trainer(make_config: MakeConfig, kind: str) -> PPOTrainer:
    return PPOTrainer(make_config(max_new_tokens=10, **KINDS[kind]), reward=spread)


def steps(one: PPOTrainer, count: int) -> Iterator[list[Any]]:
    """Everything that a PPO step gives, bit for bit, one step at a time."""
    for _ in range(count):
        step = one.ppo_step(PROMPTS[: one.config.prompts_per_step])
        columns = {name: value.tolist() for name, value in step["sa_pairs"].columns.items()}
        weights = [
            value.tolist() for role in (one.models.policy, one.models.value) for value in role.parameters().values()
        ]
        yield [list(map(str, step["generated_texts"])), columns, step["policy_loss"], step["value_loss"], weights]


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_trainers_that_take_turns_compute_as_each_does_alone(kinds: tuple[str, str], make_config: MakeConfig) -> None:
    alone = [list(steps(trainer(make_config, kind), 2)) for kind in kinds]
    first, second = (steps(trainer(make_config, kind), 2) for kind in kinds)
    assert [list(pair) for pair in zip(first, second, strict=True)] == [list(pair) for pair in zip(*alone, strict=True)]


def load(folder: Path, kind: str) -> BaseModelSetup:
    return BaseModelSetup(SFTConfig(model_name=str(folder), device="cpu", **KINDS[kind]))


def pass_through(setup: BaseModelSetup) -> tuple[Tensor, Tensor]:
    """Logits of many rows and of a few."""
    ids = torch.arange(3, 3 + 80).view(2, 40)
    states = setup.hidden_states(ids).flatten(0, 1)
    return setup.project(states), setup.project(states[:2])


@torch.no_grad()
@pytest.mark.parametrize("kinds", [*PAIRS[:3], *(pair[::-1] for pair in PAIRS[:3])], ids="-".join)
def test_a_pass_inside_the_sampling_of_another_model_has_its_own_mode(
    kinds: tuple[str, str], model_folder: Path
) -> None:
    outer, inner = (load(model_folder, kind) for kind in kinds)
    alone = pass_through(inner)
    with outer.sampling(None):
        sampling = pass_through(outer)
    with outer.sampling(DecodeLayers()):
        for ours, expected in zip(pass_through(inner), alone, strict=True):
            assert torch.equal(ours, expected)
    with outer.sampling(None):
        pass_through(inner)
        for ours, expected in zip(pass_through(outer), sampling, strict=True):
            assert torch.equal(ours, expected)


@torch.no_grad()
def test_sampling_inside_sampling_is_each_models_own(model_folder: Path) -> None:
    outer, inner = load(model_folder, "float32"), load(model_folder, "bfloat16")
    with inner.sampling(None):
        alone = pass_through(inner)
    with outer.sampling(DecodeLayers()), inner.sampling(None):
        for ours, expected in zip(pass_through(inner), alone, strict=True):
            assert torch.equal(ours, expected)
        assert current_mode().owner is inner.mode.owner
    assert current_mode() == ComputeMode()


def test_an_error_inside_a_pass_leaves_no_mode_behind(model_folder: Path) -> None:
    setup = load(model_folder, "float32")
    with pytest.raises(IndexError):
        setup.hidden_states(torch.tensor([[10**6]]))
    assert current_mode() == ComputeMode()
    assert current_mode().owner is None


def test_the_shared_scratch_depends_on_nobodys_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_scratch", products._Scratch())
    small, large = torch.randn(3, 4).bfloat16(), torch.randn(5, 6).bfloat16()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            assert torch.equal(converted(large, torch.float32), large.float())
    finally:
        torch.set_default_dtype(before)
    weight = converted(small, torch.float32)
    assert weight.dtype == torch.float32
    assert not weight.is_inference()
    assert torch.equal(weight, small.float())
