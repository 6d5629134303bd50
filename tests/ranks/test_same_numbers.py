"""Whatever the number of processes: the same texts and rewards, and the gradients and metrics of one process."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.ranks.launching import run

JOB = "tests.ranks.steps_job"
SETTINGS = {
    "model_name": "embedded",
    "device": "cpu",
    "dtype": "float32",
    "threads": 1,
    "seed": 3,
    "batch_size": 12,
    "minibatch_size": 6,
    "samples_per_prompt": 2,
    "ppo_epochs": 2,
    "max_new_tokens": 16,
    "whiten_rewards": True,
    "normalize_rewards": "running",
    "adaptive_kl": True,
    "recompute_logprobs": "always",
}
"""With everything that is computed from a whole batch."""
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "few": {"batch_size": 2, "minibatch_size": 1, "samples_per_prompt": 1},
    "trunk": {"trainable_layers": 2, "trunk_mib": 64},
    "early stop": {"target_kl": 1e-6, "learning_rate": 1e-3},
    "sharded": {"shard_base": True},
    "sharded, few": {"shard_base": True, "batch_size": 2, "minibatch_size": 1, "samples_per_prompt": 1},
    "sharded, one sequence in a pass": {"shard_base": True, "microbatch_tokens": 1, "trainable_layers": 2},
}
if importlib.util.find_spec("mlx_lm") is not None:  # needs Python 3.11 and the extra mlx
    VARIANTS["mlx"] = {"engine": "mlx"}
    VARIANTS["mlx, one response"] = {"engine": "mlx", "batch_size": 1, "minibatch_size": 1, "samples_per_prompt": 1}
GRADIENTS, WEIGHTS, METRICS = 2e-5, 1e-6, 1e-5
"""Largest differences: of a gradient relative to the largest one of its update; of a weight; of a metric, relative to
itself or to 1."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process computes."""
    return steps(tmp_path_factory.mktemp("alone"), 1, list(VARIANTS))


def steps(folder: Path, processes: int, variants: list[str]) -> dict[str, Any]:
    target = folder / f"{processes}.pt"
    code, output = run(processes, JOB, target, json.dumps({name: SETTINGS | VARIANTS[name] for name in variants}))
    assert code == 0, output
    found: dict[str, Any] = torch.load(target)
    assert {one["processes"] for one in found.values()} == {processes}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "variants"), [(2, list(VARIANTS)), (3, ["plain", "few", "sharded, few"]), (4, ["plain", "sharded"])]
)
def test_several_processes_compute_what_one_does(
    tmp_path: Path, alone: dict[str, Any], processes: int, variants: list[str]
) -> None:
    """Also with fewer sequences than processes, where some have nothing to do."""
    for name, together in steps(tmp_path, processes, variants).items():
        compare(alone[name], together)


def compare(alone: dict[str, Any], together: dict[str, Any]) -> None:
    for one, other in zip(alone["steps"], together["steps"], strict=True):
        assert one["texts"] == other["texts"]
        assert one["rewards"] == pytest.approx(other["rewards"], abs=1e-5)
        for name, value in one["metrics"].items():
            close = math.isclose(value, other["metrics"][name], rel_tol=METRICS, abs_tol=METRICS)
            assert close or math.isnan(value), name
        for name, column in one["columns"].items():
            assert torch.allclose(column.double(), other["columns"][name].double(), atol=1e-4), name
    assert len(alone["gradients"]) == len(together["gradients"]) > 0
    for one, other in zip(alone["gradients"], together["gradients"], strict=True):
        assert float((one - other).abs().max()) <= GRADIENTS * float(one.abs().max())
    for name, value in alone["weights"].items():
        assert float((value - together["weights"][name]).abs().max()) < WEIGHTS, name


@pytest.mark.slow
def test_a_process_that_drifts_is_noticed_in_the_same_step(tmp_path: Path) -> None:
    target = tmp_path / "drifted.pt"
    code, output = run(2, JOB, target, json.dumps({"plain": SETTINGS}), "drift")
    assert code != 0
    assert "have drifted apart: the checksum of the weights after step 2" in output
    assert not target.exists()
