"""Memory and operations of a run are estimated before it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from ppolm.base_setup import device
from ppolm.base_setup.base_setup import BaseModelSetup
from ppolm.base_setup.device import memory_size, resolve_dtype
from ppolm.base_setup.model_setup import setup_models
from ppolm.batches.packing_cost import Cost
from ppolm.cli.main import main
from ppolm.config import PPOConfig
from ppolm.estimate import Work, estimate, read_shape
from ppolm.estimate.estimate import duration
from ppolm.estimate.machine import gemm_gflops
from ppolm.estimate.model_shape import shape_of
from ppolm.ppo_trainer import PPOTrainer
from tests.architectures import tiny_config
from tests.conftest import PROMPTS, ROOT, spread
from tests.tiny_models import ARCHITECTURES, make_model_folder

CPU = torch.device("cpu")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("layers", [None, 1])
def test_sizes_are_those_of_the_loaded_model(
    architecture: str, layers: int | None, make_config: Callable[..., PPOConfig], tmp_path: Path
) -> None:
    folder = make_model_folder(tmp_path / architecture, architecture)
    config = make_config(model_name=str(folder), trainable_layers=layers)
    shape, models = read_shape(config), setup_models(config)
    lora = models.policy.parameters()
    assert shape.adapter == sum(value.numel() for value in lora.values())
    whole = sum(value.numel() for name, value in models.setup.causal_lm.named_parameters() if ".lora_" not in name)
    assert shape.parameters == whole
    assert (shape.layers, shape.trained_layers) == (2, layers or 2)
    assert (shape.hidden, shape.heads, shape.vocab) == (32, 32, 259)


def test_sizes_of_a_second_round_are_those_of_the_run_it_starts_from(make_config: Callable[..., PPOConfig]) -> None:
    first = PPOTrainer(make_config(lora_r=2, max_steps=1, eval_every=0), reward=spread).train(PROMPTS).run_dir
    config = make_config(start_from=str(first), lora_r=16, lora_alpha=32)
    shape, trainer = read_shape(config), PPOTrainer(config, reward=spread)
    assert shape.adapter == sum(value.numel() for value in trainer.models.policy.parameters().values())
    assert shape.rank == 2


@pytest.mark.parametrize(("name", "heads", "kv"), [("gemma4_text", 4 * 16, 2 * 16), ("gemma3n_text", 4 * 8, 2 * 8)])
def test_where_layers_differ_in_size_the_largest_counts(
    name: str, heads: int, kv: int, make_config: Callable[..., PPOConfig]
) -> None:
    text = tiny_config(name)
    with torch.device("meta"):
        shape = shape_of(AutoModelForCausalLM.from_config(text), make_config(trainable_layers=1))
    assert (shape.heads, shape.kv, shape.inner) == (heads, kv, 64)
    assert Cost.of(text).balance == pytest.approx((2 * 32 * kv + 2 * 32 * heads + 3 * 32 * 64) / (2 * heads))


def test_operations_are_two_per_weight_and_token_and_less_where_less_is_computed(
    make_config: Callable[..., PPOConfig],
) -> None:
    shape = read_shape(make_config())
    work = Work(shape, prompt=10, response=0, batch=1)
    adapter = shape.adapter / shape.layers
    assert work.products(3) == 3 * 10 * 2 * (shape.block_weights + adapter)
    assert work.attention() == 4 * shape.heads * 10 * 10 / 2
    assert work.products(0, last=10) == pytest.approx(work.products(1)), "a last block that is wanted everywhere"
    whole, shared = (Work(shape, 100, 20, batch=8, samples=samples) for samples in (1, 4))
    assert (whole.tokens, shared.tokens) == (8 * 120, 2 * 100 + 8 * 20)
    believed = Work(shape, 100, 20, batch=8, recomputed=False)
    for name in ("generation", "scoring", "training"):
        assert getattr(shared, name)() < getattr(whole, name)()
    assert believed.scoring() < whole.scoring()
    top = Work(read_shape(make_config(trainable_layers=1)), 100, 20, batch=8)
    assert top.scoring() < whole.scoring()
    assert top.training() < whole.training()


def test_an_estimate_knows_prompts_roles_and_steps(make_config: Callable[..., PPOConfig]) -> None:
    config = make_config(reward=("model",), num_epochs=2, eval_every=0)
    found = estimate(config, PROMPTS)
    assert found.adapters == 3
    assert found.steps == -(-2 * len(PROMPTS) // config.prompts_per_step)
    assert found.lengths.longest == max(len(prompt.encode()) for prompt in PROMPTS)
    assert found.memory.trunk == 0
    assert estimate(make_config(trainable_layers=1), PROMPTS).memory.trunk > 0
    more = estimate(make_config(microbatch_tokens=4096, minibatch_size=64, batch_size=64), PROMPTS * 20)
    assert more.memory.training > found.memory.training


def test_the_command_prints_it_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    with pytest.raises(SystemExit) as ended:
        main(["train", "--model-name", "embedded", "--output-dir", str(tmp_path / "runs"), "--estimate"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    for word in ("Memory at its peak", "adapters", "generation", "TFLOP", "GFLOPS, the fastest matrix product"):
        assert word in printed
    assert not (tmp_path / "runs").exists()


def test_the_estimate_is_within_a_quarter_of_the_measured_peak() -> None:
    """Measured in a separate process, with a model large enough to outweigh the program itself."""
    flags = "--shape small --shortest 300 --longest 300 --response 12 --batch 16 --epochs 1 --steps 1 --threads 1"
    answer = subprocess.run(
        [sys.executable, "-m", "bench.ours", *flags.split(), "--microbatch-tokens", "12000"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found["estimated_gib"] == pytest.approx(found["peak_rss_gib"], rel=0.25)


@pytest.mark.parametrize(
    ("multiplies", "size", "memory", "expected"),
    [
        (True, device.LARGE, None, torch.bfloat16),
        (True, device.LARGE - 1, None, torch.float32),
        (False, device.LARGE, None, torch.float32),
        (False, device.LARGE, 64 * 2**30, torch.float32),
        (False, device.LARGE, 2**30, torch.bfloat16),
    ],
)
def test_precision_follows_size_hardware_and_memory(
    multiplies: bool, size: int, memory: int | None, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "multiplies_bfloat16", lambda: multiplies)
    monkeypatch.setattr(device, "memory_size", lambda _: memory)
    assert resolve_dtype("auto", CPU, lambda: size) == expected
    assert resolve_dtype("bfloat16", CPU, lambda: pytest.fail("not asked")) == torch.bfloat16


def test_auto_asks_the_model_for_its_size(
    make_config: Callable[..., PPOConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(device, "LARGE", 10_000)
    assert BaseModelSetup(make_config(dtype="auto")).dtype == torch.bfloat16
    monkeypatch.setattr(device, "LARGE", 10**9)
    assert BaseModelSetup(make_config(dtype="auto")).dtype == torch.float32


def test_the_machine_is_measured() -> None:
    assert gemm_gflops(torch.float32, CPU, seconds=0.05) > 0.1
    size = memory_size(CPU)
    assert size is None or size > 2**28


@pytest.mark.parametrize(("seconds", "text"), [(0.31, "0.31 s"), (42, "42 s"), (1234, "21 min"), (9999, "2.8 h")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_copy_of_the_base_in_another_engine_counts_and_so_does_scoring_what_it_sampled(
    make_config: Callable[..., PPOConfig],
) -> None:
    local, mlx = (estimate(make_config(engine=engine), PROMPTS) for engine in ("local", "mlx"))
    assert mlx.memory.base == 2 * local.memory.base
    assert mlx.work.scoring() > local.work.scoring()
    assert "and a copy in engine mlx" in mlx.text(100.0)
    assert "copy" not in local.text(100.0)
