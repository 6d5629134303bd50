"""The probe measures this machine with small models of the planned widths; what is planned is what a run takes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest
import torch

from bench.plan import NARROW, RANDOM, make_model
from ppolm.cli.plan_command import parse_plan
from ppolm.config import PPOConfig
from ppolm.estimate.memory import Devices, Lengths
from ppolm.planning import probe as module
from ppolm.planning.model import model_config, shape_config
from ppolm.planning.probe import Sizes, probe
from ppolm.planning.trial_model import VOCABULARY, depths, make_folder, trial_config
from tests.conftest import ROOT

CPU = torch.device("cpu")


def test_a_trial_has_the_widths_of_the_model_and_few_blocks(tmp_path: Path) -> None:
    planned = shape_config("qwen3-8b")
    few = trial_config(planned, 2)
    assert (few.hidden_size, few.intermediate_size, few.num_hidden_layers) == (4096, 12288, 2)
    assert (few.vocab_size, planned.vocab_size, planned.num_hidden_layers) == (VOCABULARY, 151936, 36)
    assert depths(200_000_000)[1] < depths(1_000_000)[1]
    embedded = model_config(PPOConfig(model_name="embedded"))
    folder = make_folder(trial_config(embedded, 1), tmp_path / "trial", torch.float32)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in folder.iterdir()}


def test_a_trial_is_as_large_as_the_runs_own_passes_and_no_larger_than_seconds_allow() -> None:
    config = PPOConfig(batch_size=48, minibatch_size=24, max_new_tokens=48, microbatch_tokens=8192)
    sizes = Sizes.of(config, Lengths(100, 80.0), 24.0, 1, None)
    assert (sizes.prompt, sizes.response, sizes.answers, sizes.rows) == (80, 24, 24, 48)
    assert Sizes.of(config, Lengths(100, 80.0), 24.0, 2, None).answers == 12
    huge = PPOConfig(batch_size=4096, minibatch_size=4096, max_new_tokens=1000)
    sizes = Sizes.of(huge, Lengths(9000, 8000.0), 1000.0, 1, None)
    assert sizes.rows * sizes.prompt <= module.ROWS * module.TOKENS
    assert sizes.answers == 1
    assert Sizes.of(config, Lengths(500, 400.0), 24.0, 1, 128).prompt + sizes.long <= 128 + 24


def test_the_probe_finds_finite_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST", 2)
    monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(module, "STREAM", 2**22)
    _, _, config = parse_plan(
        ["--model-name", "embedded", "--threads", "1", "--batch-size", "4", "--minibatch-size", "2"]
    )
    speed = probe(config, model_config(config), Lengths(60, 40.0), 12.0, CPU, torch.float32, Devices(1))
    measured = (speed.scoring.blocks, speed.scoring.output, speed.update.blocks, speed.update.output, speed.bandwidth)
    assert all(0 < value < math.inf for value in measured)
    assert speed.block_overhead >= 0
    assert speed.token_overhead >= 0


def test_planned_memory_is_within_30_percent_of_a_runs_peak(tmp_path: Path) -> None:
    """A random model with prompts of equal length, and passes so large that they count beside the program.

    Planned without the probe, which takes time and changes no memory.
    """
    make_model("llama", NARROW, tmp_path / "model")
    flags = ["--model-name", str(tmp_path / "model"), "--prompts", str(tmp_path / "model" / "prompts.txt"), *RANDOM]
    flags += split("--threads 1 --batch-size 32 --minibatch-size 32 --microbatch-tokens 8192 --max-new-tokens 16")
    flags += split("--ppo-epochs 1 --max-steps 1 --dtype float32 --device cpu")
    planning = (
        "import sys, torch\nfrom ppolm.planning import this_machine\n"
        "from ppolm.planning.hardware import KNOWN, published_speed\n"
        "this_machine.probe = lambda *_: published_speed(KNOWN['laptop'], torch.float32)\n"
        "from ppolm.cli.main import run\nsys.exit(run(sys.argv[1:]))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    planned = subprocess.run([sys.executable, "-c", planning, "plan", *flags, "--json"], check=True, **options)  # type: ignore[call-overload]
    done = subprocess.run(  # type: ignore[call-overload]
        [
            sys.executable,
            "-m",
            "bench.plan",
            "--work",
            "train",
            *flags,
            "--output-dir",
            str(tmp_path),
            "--run-name",
            "run",
        ],
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    measured = float((tmp_path / "peak-0").read_text())
    found = json.loads(planned.stdout)["memory_bytes"]
    assert found["training"] > 0.25 * found["program"]
    assert found["peak"] / 2**30 == pytest.approx(measured, rel=0.3)
