"""Gradient checkpointing changes no gradient, is used only where it is needed, and is refused where it cannot work."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ppolm.base_setup import device, recomputation
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.base_setup.recomputation import held, plan_recomputation, recomputation_refusal
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.data.examples import Demonstration, Judgement, Preference, Rating
from ppolm.data.prompts import Prompt
from ppolm.errors import ModelError
from ppolm.kernels import replaced_forward
from ppolm.ppo_trainer import PPOTrainer
from ppolm.supervised import RewardTrainer, SFTTrainer
from tests.conftest import PROMPTS, spread
from tests.tiny_models import ARCHITECTURES, make_model_folder

MakeConfig = Callable[..., PPOConfig]
SEQUENCES = TokenSequences(
    [torch.arange(3, 3 + length) for length in (9, 9, 4)], [torch.arange(20, 20 + length) for length in (6, 3, 8)]
)
SUPERVISED: dict[str, Any] = {"lora_r": 4, "batch_size": 4, "learning_rate": 1e-2, "warmup_steps": 0, "device": "cpu"}
SUPERVISED |= {"lora_dropout": 0.3, "eval_every": 2, "eval_fraction": 0.3, "dtype": "float32"}
SUPERVISED |= {"without": ("slot_sampler", "decode_matrices", "library_cache")}


def gradients(models: Models, above: float) -> dict[str, Tensor]:
    """Gradients of policy and value from one microbatch each."""
    models.setup.recomputes_above = above
    found: dict[str, Tensor] = {}
    for name, role in (("policy", models.policy), ("value", models.value)):
        with role.active(trainable=True):
            for batch in role.microbatches(SEQUENCES, 10**6):
                numbers = (
                    models.policy.token_logprobs(batch, 0.7)[0]
                    if name == "policy"
                    else models.value.token_values(batch)
                )
                (numbers * torch.linspace(-1, 2, len(numbers))).sum().backward()
        found |= {
            f"{name} {key}": value.grad.clone() for key, value in role.parameters().items() if value.grad is not None
        }
        for value in role.parameters().values():
            value.grad = None
    assert any(value.any() for key, value in found.items() if key.startswith("policy"))
    return found


def randomise(models: Models) -> None:
    """New adapters and heads are zero, and so would be most gradients."""
    random = torch.Generator().manual_seed(1)
    for role in (models.policy, models.value):
        for value in role.parameters().values():
            value.data.normal_(std=0.1, generator=random)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[key]) for key, value in one.items())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("settings", [{}, {"trainable_layers": 1}, {"plain": True}, {"dtype": "bfloat16"}], ids=str)
@pytest.mark.usefixtures("always_packed")
def test_gradients_are_equal_to_the_last_bit(
    architecture: str, settings: dict[str, Any], make_config: MakeConfig, tmp_path: Path
) -> None:
    models = setup_models(make_config(model_name=str(make_model_folder(tmp_path / "m", architecture)), **settings))
    randomise(models)
    assert same(gradients(models, above=float("inf")), gradients(models, above=0))


def numbers_of(trainer: PPOTrainer) -> dict[str, Tensor]:
    return trainer.models.policy.parameters() | trainer.models.value.parameters()


@pytest.mark.parametrize("layers", [None, 1])
def test_ppo_learns_the_same_weights(layers: int | None, make_config: MakeConfig) -> None:
    found = []
    for asked in ("off", "on"):
        trainer = PPOTrainer(make_config(gradient_checkpointing=asked, trainable_layers=layers), reward=spread)
        assert trainer.models.setup.recomputes_above == (0 if asked == "on" else float("inf"))
        for _ in range(2):
            trainer.ppo_step(PROMPTS[:4])
        found.append(numbers_of(trainer))
    assert same(*found)


@pytest.mark.parametrize("train", ["adapter", "all"])
def test_sft_learns_the_same_weights_with_dropout(train: Any, model_folder: Path) -> None:
    rows = [Demonstration(Prompt(f"Say yes {number}:"), f" yes {number}") for number in range(12)]
    found = []
    for asked in ("off", "on"):
        config = SFTConfig(model_name=str(model_folder), gradient_checkpointing=asked, train=train, **SUPERVISED)
        trainer = SFTTrainer(config, rows)
        assert trainer.model.setup.recomputes_above == (0 if asked == "on" else float("inf"))
        history = trainer.train()
        found.append((history, trainer.model.parameters()))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])


@pytest.mark.parametrize("layers", [None, 1])
def test_a_reward_model_learns_the_same_weights_with_dropout(layers: int | None, model_folder: Path) -> None:
    rows: list[Judgement] = [
        *(Preference(Prompt(f"Be kind {n}:"), f" kind {n}", f" rude {n}") for n in range(8)),
        *(Rating(Prompt(f"Be brief {n}:"), " so" * n, float(n)) for n in range(1, 5)),
    ]
    found = []
    for asked in ("off", "on"):
        config = RewardConfig(
            model_name=str(model_folder), gradient_checkpointing=asked, trainable_layers=layers, **SUPERVISED
        )
        trainer = RewardTrainer(config, rows)
        history = trainer.train()
        found.append((history, trainer.model.parameters()))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])


def count_blocks(models: Models) -> Counter[int]:
    """Counts how often each block is computed from now on."""
    counts: Counter[int] = Counter()
    for number, block in enumerate(models.setup.block_list):
        own = replaced_forward.find(block)

        def counted(*given: Any, own: Any = own, number: int = number, **named: Any) -> Any:
            counts[number] += 1
            return own(*given, **named)

        replaced_forward.install(block, counted)
    models.setup.last_block = None  # it expects a fused block
    return counts


def test_blocks_run_twice_with_gradients_and_once_without(make_config: MakeConfig) -> None:
    models = setup_models(make_config(gradient_checkpointing="on"))
    counts = count_blocks(models)
    models.policy.logprobs(SEQUENCES, 1.0, 10**6)
    assert counts == {0: 1, 1: 1}
    gradients(models, above=0)
    assert counts == {0: 5, 1: 5}  # two roles
    gradients(models, above=float("inf"))
    assert counts == {0: 7, 1: 7}


def test_the_blocks_below_the_trained_ones_are_never_recomputed(make_config: MakeConfig) -> None:
    models = setup_models(make_config(gradient_checkpointing="on", trainable_layers=1))
    counts = count_blocks(models)
    gradients(models, above=0)
    assert counts[1] == 4
    assert counts[0] <= 2


def test_auto_recomputes_only_passes_that_do_not_fit(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ppolm")
    models = setup_models(make_config())
    assert models.setup.recomputes_above == float("inf")  # this machine has room
    base, others = held(models.adapters, ("policy", "value"))
    for room, tokens in ((40, 39), (100, 99)):
        each = 2 * 4 * (4 * 32 + 32 + 48 + 3 * 64 + 2 * 32 + 2 * 16) + 4 * 2 * 32
        memory = int(recomputation.PROGRAM + 1.1 * (base + others + room * each))
        monkeypatch.setattr(recomputation, "memory_size", lambda _, memory=memory: memory)
        plan_recomputation(models.adapters, ("policy", "value"), make_config())
        assert tokens <= models.setup.recomputes_above <= room
        assert "the base" in caplog.messages[-1]
        assert f"more than {models.setup.recomputes_above:.0f} tokens" in caplog.messages[-1]
    monkeypatch.setattr(recomputation, "memory_size", lambda _: None)
    plan_recomputation(models.adapters, ("policy", "value"), make_config())
    assert models.setup.recomputes_above == float("inf")
    assert "not known" in caplog.messages[-1]


def test_auto_gives_each_of_several_processes_a_share_of_the_machine(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = setup_models(make_config())
    base, others = held(models.adapters, ("policy", "value"))
    memory = int(recomputation.PROGRAM + 1.1 * (base + others) + 2**20)
    monkeypatch.setattr(device, "machine_size", lambda: 2 * memory)
    plan_recomputation(models.adapters, ("policy", "value"), make_config())
    alone = models.setup.recomputes_above
    monkeypatch.setattr(device, "processes_here", lambda: 2)
    plan_recomputation(models.adapters, ("policy", "value"), make_config())
    assert models.setup.recomputes_above < alone


def test_auto_decides_by_the_size_of_the_pass(make_config: MakeConfig) -> None:
    models = setup_models(make_config())
    counts = count_blocks(models)
    (batch,) = models.policy.microbatches(SEQUENCES, 10**6)
    tokens = batch.input_ids.numel()
    gradients(models, above=tokens)
    assert counts == {0: 2, 1: 2}
    gradients(models, above=tokens - 1)
    assert counts == {0: 6, 1: 6}


def forgetful(blocks: nn.ModuleList, skips: bool) -> None:
    """Blocks that compute something else when recomputed: nothing if ``skips``, as if cached, or other numbers."""
    calls: Counter[int] = Counter()
    for number, block in enumerate(blocks):
        own = replaced_forward.find(block)

        def forward(hidden: Tensor, *given: Any, own: Any = own, number: int = number, **named: Any) -> Tensor:
            calls[number] += 1
            again = calls[number] % 3 == 0  # plain pass, checkpointed pass, its recomputation
            if again and skips:
                return hidden * 1
            return own(hidden * (2 if again else 1), *given, **named)

        replaced_forward.install(block, forward)


@pytest.mark.parametrize(("skips", "why"), [(False, "gradients are off by"), (True, "something else the second time")])
def test_a_model_whose_blocks_cannot_be_recomputed_is_refused_with_the_reason(
    skips: bool,
    why: str,
    make_config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = setup_models(make_config(without=("packed_prompts", "last_block_alone")))
    forgetful(models.setup.block_list, skips)
    assert why in str(recomputation_refusal(models.setup))
    with pytest.raises(ModelError, match="gradient_checkpointing is on, but"):
        plan_recomputation(models.adapters, ("policy", "value"), make_config(gradient_checkpointing="on"))
    monkeypatch.setattr(recomputation, "memory_size", lambda _: 2**20)
    plan_recomputation(models.adapters, ("policy", "value"), make_config())
    assert models.setup.recomputes_above == float("inf")
    assert "lower microbatch_tokens" in caplog.messages[-1]


def test_yaml_words_for_true_and_false_are_on_and_off(tmp_path: Path) -> None:
    for word in ("on", "off", "auto"):
        (tmp_path / "c.yaml").write_text(f"gradient_checkpointing: {word}\n")
        config = PPOConfig.from_yaml(tmp_path / "c.yaml")
        assert config.gradient_checkpointing == word
        config.to_yaml(tmp_path / "again.yaml")
        assert PPOConfig.from_yaml(tmp_path / "again.yaml") == config
