"""A base in 4 bits trains with the right gradients, through its own layers alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ppolm.base_setup import four_bits
from ppolm.base_setup.capabilities import READS_WEIGHTS
from ppolm.base_setup.four_bits import PACKED, gradient_error, has_packed_weights, is_packed, make_differentiable
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.data.examples import Demonstration, Preference
from ppolm.data.prompts import Prompt
from ppolm.errors import ConfigError, ModelError
from ppolm.estimate.memory import base_size
from ppolm.estimate.model_shape import read_shape
from ppolm.names import EMBEDDED
from ppolm.ppo_trainer import PPOTrainer
from ppolm.supervised import RewardTrainer, SFTTrainer
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]
needs_bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed (extra bits)"
)
SEQUENCES = TokenSequences([torch.arange(3, 12), torch.arange(5, 9)], [torch.arange(20, 27), torch.arange(40, 44)])
SUPERVISED: dict[str, Any] = {
    "model_name": EMBEDDED,
    "lora_r": 4,
    "batch_size": 4,
    "eval_fraction": 0.3,
    "dtype": "float32",
}
SUPERVISED |= {"without": ("slot_sampler", "decode_matrices", "library_cache"), "device": "cpu", "base_bits": 4}


@pytest.fixture
def packed(make_config: MakeConfig) -> Models:
    """The roles on a packed base; its matrices are 128 wide, and a scale belongs to 64 weights."""
    return setup_models(make_config(model_name=EMBEDDED, base_bits=4, dtype="float32"))


def test_without_bitsandbytes_the_user_is_told_what_to_install(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(four_bits.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"pip install 'ppolm\[bits\]'"):
        setup_models(make_config(base_bits=4))


def test_packed_weights_are_not_trained() -> None:
    with pytest.raises(ConfigError, match="cannot be trained"):
        SFTConfig(model_name=EMBEDDED, train="all", base_bits=4)


class Silent(nn.Linear):
    """A layer whose product has no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.detach()).sum() * 0 + super().forward(x.detach())


def test_a_layer_that_passes_no_gradient_on_is_noticed() -> None:
    assert gradient_error(nn.Linear(8, 6)) < 1e-6
    assert gradient_error(Silent(8, 6)) == pytest.approx(1)


@needs_bitsandbytes
def test_the_matrices_of_blocks_are_packed_and_nothing_else(packed: Models, make_config: MakeConfig) -> None:
    linear = [module for module in packed.setup.block_list.modules() if type(module).__name__ == "Linear4bit"]
    bases = [module for module in linear if isinstance(module, nn.Linear)]
    assert len(bases) == 4 * 7
    assert all(map(is_packed, bases))
    assert packed.setup.causal_lm.get_input_embeddings().weight.dtype == torch.float32
    assert packed.setup.plain_matrix is not None
    own = {id(value) for name in packed.adapters.names for value in packed.adapters.parameters(name).values()}
    found = sum(value.nbytes for value in packed.setup.causal_lm.parameters() if id(value) not in own)
    config = make_config(model_name=EMBEDDED, base_bits=4)
    assert base_size(read_shape(config), config, torch.float32) == pytest.approx(found, rel=0.02)


@needs_bitsandbytes
def test_our_kernels_leave_packed_weights_alone(packed: Models) -> None:
    found = packed.setup.capabilities
    assert has_packed_weights(packed.setup.causal_lm)
    assert {path: found.refusals[path] for path in READS_WEIGHTS} == dict.fromkeys(READS_WEIGHTS, PACKED)
    assert not packed.setup.fused
    assert packed.setup.last_block is None
    assert {"packed_prompts", "slot_sampler", "shared_trunk"} <= set(found.on)


def randomised(models: Models) -> Models:
    random = torch.Generator().manual_seed(1)
    for value in models.policy.parameters().values():
        value.data.normal_(std=0.1, generator=random)
    return models


def gradients(models: Models) -> tuple[Tensor, dict[str, Tensor]]:
    with models.policy.active(trainable=True):
        (batch,) = models.policy.microbatches(SEQUENCES, 10**6)
        logprobs = models.policy.token_logprobs(batch, 1.0)[0]
        (logprobs * torch.linspace(-1, 2, len(logprobs))).sum().backward()
    found = {name: value.grad for name, value in models.policy.parameters().items() if value.grad is not None}
    return logprobs.detach(), found


@needs_bitsandbytes
@pytest.mark.parametrize("asked", ["off", "on"])
def test_log_probabilities_and_gradients_are_those_of_the_unpacked_weights(asked: str, make_config: MakeConfig) -> None:
    from bitsandbytes.functional import dequantize_4bit

    given: dict[str, Any] = {"model_name": EMBEDDED, "dtype": "float32", "gradient_checkpointing": asked}
    packed, plain = (randomised(setup_models(make_config(base_bits=bits, **given))) for bits in (4, None))
    theirs = dict(packed.setup.causal_lm.named_modules())
    for path, module in plain.setup.causal_lm.named_modules():
        if type(module) is nn.Linear and is_packed(theirs[path]):
            weight: Any = theirs[path].weight
            module.weight.data = dequantize_4bit(weight.data, weight.quant_state).float()
    (ours, ours_down), (reference, reference_down) = gradients(packed), gradients(plain)
    torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-4)
    assert ours_down.keys() == reference_down.keys()
    for name, value in reference_down.items():
        assert float((ours_down[name] - value).norm()) <= 1e-4 * float(value.norm()), name


@needs_bitsandbytes
def test_the_layout_without_gradients_is_avoided(packed: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    layer: Any = next(one for one in packed.setup.block_list.modules() if is_packed(one) and isinstance(one, nn.Linear))
    assert gradient_error(layer) < 1e-4
    make_differentiable(packed.setup.causal_lm, "x")
    layer.support_avx512bf16_for_cpu = torch.cpu._is_avx512_bf16_supported()
    if not layer.support_avx512bf16_for_cpu:
        pytest.skip("this CPU has no bfloat16 instructions, so the layout is never changed")
    assert gradient_error(layer) > 0.5
    monkeypatch.setattr(four_bits, "gradient_error", lambda _: 1.0)
    with pytest.raises(ModelError, match="wrong gradients here"):
        make_differentiable(packed.setup.causal_lm, "x")


@needs_bitsandbytes
def test_ppo_on_a_packed_base_learns_and_its_adapter_fits_the_plain_one(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    trainer = PPOTrainer(make_config(model_name=EMBEDDED, base_bits=4, trainable_layers=2), reward=spread)
    before = {name: value.clone() for name, value in trainer.models.policy.parameters().items()}
    for _ in range(2):
        results = trainer.ppo_step(PROMPTS[:4])
    assert all(value.isfinite().all() for value in results["sa_pairs"].columns.values())
    assert any(not torch.equal(value, before[name]) for name, value in trainer.models.policy.parameters().items())
    assert trainer.models.adapters.trunk is not None
    trainer.models.policy.save(tmp_path / "policy")
    models = setup_models(make_config(model_name=EMBEDDED, sft_adapter=str(tmp_path / "policy")))
    saved = list(trainer.models.policy.parameters().values())
    assert all(torch.equal(*pair) for pair in zip(models.sft.parameters().values(), saved, strict=True))


@needs_bitsandbytes
def test_sft_and_reward_models_are_trained_on_a_packed_base() -> None:
    rows = [Demonstration(Prompt(f"Say yes {number}:"), f" yes {number}") for number in range(12)]
    judged = [Preference(Prompt(f"Be kind {n}:"), f" kind {n}", f" rude {n}") for n in range(12)]
    trainers = (
        SFTTrainer(SFTConfig(learning_rate=1e-2, warmup_steps=0, **SUPERVISED), rows),
        RewardTrainer(RewardConfig(learning_rate=1e-2, warmup_steps=0, **SUPERVISED), judged),
    )
    for trainer in trainers:
        history = trainer.train()
        assert history[-1]["loss"] < history[0]["loss"]
