"""Every role computes with its own adapter, whichever was active before, and leaves the adapters as it found them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from ppolm.base_setup import AdapterSet, BaseModelSetup
from ppolm.base_setup.load_model import find_blocks
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig, SFTConfig
from ppolm.models.full_finetune_model import FullFinetuneModel
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rollout.sampling import Sampling
from tests.conftest import PROMPTS, spread
from tests.sft_adapter import make_sft_adapter

MakeConfig = Callable[..., PPOConfig]
SEQUENCES = TokenSequences([torch.arange(3, 9), torch.arange(5, 8)], [torch.arange(9, 15), torch.arange(4, 8)])
BUDGET = 12  # two passes
SHAPES = [{}, {"trainable_layers": 1}, {"plain": True}]


class FailedPassError(Exception):
    """Raised by a test in the middle of a pass."""


@pytest.fixture(params=SHAPES, ids=["fused", "trunk", "plain"])
def make_models(request: pytest.FixtureRequest, make_config: MakeConfig, tmp_path: Path) -> Callable[[], Models]:
    """Four roles whose adapters and heads all differ; the same numbers every time."""
    # With a trunk the reference is the bare base: an adapter of its own would reach below it.
    sft = None if "trainable_layers" in request.param else str(make_sft_adapter(make_config(), tmp_path / "sft"))

    def make() -> Models:
        models = setup_models(make_config(sft_adapter=sft, reward=("model",), **request.param))
        assert models.reward is not None
        random = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for role in (models.policy, models.value, models.reward):
                for value in role.parameters().values():
                    value.normal_(std=0.2, generator=random)
        return models

    return make


def scorers(models: Models) -> dict[str, Callable[[], Tensor]]:
    """Everything that the roles compute, as functions by name."""
    (batch,) = models.policy.microbatches(SEQUENCES, 10**6)
    prompts = [[3, 4, 5, 6], [7, 8]]
    uniforms = torch.rand(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def sampled() -> Tensor:
        return torch.cat([torch.tensor(one.logprobs) for one in models.policy.generate(prompts, Sampling(5), uniforms)])

    def alone(measure: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def forgetful() -> Tensor:
            models.adapters.forget_states()  # those of another microbatch may differ in their last bit
            return measure()

        return forgetful

    assert models.reward is not None
    reward = models.reward
    found: dict[str, Callable[[], Tensor]] = {
        "policy": lambda: models.policy.logprobs(SEQUENCES, 1.0, BUDGET),
        "reference": lambda: models.sft.logprobs(SEQUENCES, 1.0, BUDGET),
        "value": lambda: models.value.values(SEQUENCES, BUDGET),
        "reward": lambda: reward.scores(SEQUENCES),
        "sampler": sampled,
        "policy, one batch": lambda: models.policy.token_logprobs(batch, 1.0)[0].detach(),
        "reference, one batch": lambda: models.sft.token_logprobs(batch, 1.0)[0].detach(),
        "value, one batch": lambda: models.value.token_values(batch).detach(),
        "reward, states": lambda: reward.states(batch).detach(),
    }
    return {name: alone(measure) for name, measure in found.items()}


def layers(models: Models) -> list[Any]:
    return [module for module in models.adapters.model.modules() if isinstance(module, BaseTunerLayer)]


def switches(models: Models) -> list[Any]:
    """Which adapter is active in each of PEFT's layers, and which parameters require gradients."""
    state: list[Any] = [(layer.active_adapters, layer.disable_adapters) for layer in layers(models)]
    heads = [parameter for head in models.adapters.heads.values() for parameter in head.parameters()]
    return state + [value.requires_grad for value in (*models.adapters.model.parameters(), *heads)]


@pytest.fixture
def fresh(make_models: Callable[[], Models]) -> dict[str, Tensor]:
    """What each role computes right after loading."""
    return {name: scorers(make_models())[name]() for name in scorers(make_models())}


def test_in_any_order_each_role_gives_the_numbers_of_a_fresh_model(
    make_models: Callable[[], Models], fresh: dict[str, Tensor]
) -> None:
    models = make_models()
    score = scorers(models)
    numbers = [fresh[name] for name in ("policy", "reference", "value")]
    assert not any(torch.equal(a, b) for a, b in permutations(numbers, 2)), "a wrong adapter would be noticed"
    before = switches(models)
    for order in permutations(("policy", "reference", "value", "reward")):
        for name in order:
            assert torch.equal(score[name](), fresh[name]), (order, name)
            assert switches(models) == before


def inside(models: Models) -> Iterator[Any]:
    """Contexts in which a role is already active, trainable or not."""
    assert models.reward is not None
    for role, trainable in [(models.policy, True), (models.policy, False), (models.sft, False), (models.value, True)]:
        yield role.active(trainable=trainable)
    yield models.reward.active(trainable=True)


def test_inside_another_role_too_and_the_outer_one_is_active_again(
    make_models: Callable[[], Models], fresh: dict[str, Tensor]
) -> None:
    models = make_models()
    score, before = scorers(models), switches(models)
    for outer in inside(models):
        with outer:
            entered = switches(models)
            for name, measure in score.items():
                assert torch.equal(measure(), fresh[name]), name
                assert switches(models) == entered, name
        assert switches(models) == before


def test_after_an_error_in_the_middle_of_a_pass_everything_is_as_before(
    make_models: Callable[[], Models], fresh: dict[str, Tensor]
) -> None:
    models = make_models()
    score, before, last = scorers(models), switches(models), find_blocks(models.setup.causal_lm)[1][-1]

    def fail(*_: Any) -> None:
        raise FailedPassError

    for outer in inside(models):
        with outer:
            entered = switches(models)
            for measure in score.values():
                hook = last.register_forward_hook(fail)
                with pytest.raises(FailedPassError):
                    measure()
                hook.remove()
                assert switches(models) == entered
        assert switches(models) == before
    for name, measure in score.items():
        assert torch.equal(measure(), fresh[name]), name


def test_an_interrupted_switch_is_not_taken_for_one_that_was_done(
    make_models: Callable[[], Models], fresh: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = make_models()
    score, before = scorers(models), switches(models)

    def fail(*_: Any, **__: Any) -> None:
        raise FailedPassError

    monkeypatch.setattr(layers(models)[5], "set_adapter", fail)
    with pytest.raises(FailedPassError):
        score["policy"]()
    monkeypatch.undo()
    assert switches(models) == before
    for name, measure in score.items():
        assert torch.equal(measure(), fresh[name]), name


def test_gradients_reach_the_role_that_trains_and_no_other(make_models: Callable[[], Models]) -> None:
    models = make_models()
    (batch,) = models.policy.microbatches(SEQUENCES, 10**6)
    frozen, _ = models.policy.token_logprobs(batch, 1.0)
    assert not frozen.requires_grad, "nobody said that it trains"
    with models.policy.active(trainable=True):
        logprobs, _ = models.policy.token_logprobs(batch, 1.0)
        models.value.token_values(batch)  # in between
        logprobs.sum().backward()
    assert all(value.grad is not None for value in models.policy.parameters().values())
    others = [role.parameters().values() for role in (models.sft, models.value)]
    assert all(value.grad is None for values in others for value in values)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, bool]]:
    """Every switch of all layers: the adapter, and whether it is trainable."""
    made: list[tuple[str | None, bool]] = []
    switch = AdapterSet._switch

    def count(self: AdapterSet, inner: list[str], trainable: bool) -> None:
        made.append((inner[0] if inner else None, trainable))
        switch(self, inner, trainable)

    monkeypatch.setattr(AdapterSet, "_switch", count)
    return made


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_ppo_step_switches_once_per_stage_whatever_its_number_of_updates(
    epochs: int, make_config: MakeConfig, counted: list[tuple[str | None, bool]]
) -> None:
    config = make_config(ppo_epochs=epochs, microbatch_tokens=64, recompute_logprobs="always")
    trainer = PPOTrainer(config, reward=spread)
    counted.clear()
    trainer.ppo_step(PROMPTS[:4])
    bare = (None, False)
    sampled = scored = [("policy", False), bare]
    trained = [("value", True), bare, ("policy", True), bare]
    assert counted == [*sampled, *scored, ("value", False), bare, *trained]


def test_a_role_that_is_active_already_is_not_switched_to(
    models: Models, counted: list[tuple[str | None, bool]]
) -> None:
    (batch,) = models.policy.microbatches(SEQUENCES, 10**6)
    with models.policy.active(trainable=True):
        counted.clear()
        models.policy.token_logprobs(batch, 1.0)
        models.policy.logprobs(SEQUENCES, 1.0, BUDGET)
        assert counted == []


def test_a_whole_model_trains_only_where_it_says_so(model_folder: Path) -> None:
    setup = BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))
    model = FullFinetuneModel(AdapterSet(setup))
    whole: nn.Module = setup.causal_lm

    def trains() -> set[bool]:
        return {value.requires_grad for value in whole.parameters()}

    def fail() -> None:
        with model.active(trainable=True):
            assert trains() == {True}
            with model.active(trainable=False):
                assert trains() == {False}
                model.logprobs(SEQUENCES, 1.0, BUDGET)
            assert trains() == {True}
            raise FailedPassError

    with pytest.raises(FailedPassError):
        fail()
    assert trains() == {False}
