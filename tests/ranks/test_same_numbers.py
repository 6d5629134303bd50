"""Whatever the number of processes: the same texts and rewards, and the gradients and metrics of one process."""

from __future__ import annotations

import importlib.util
import json
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

UNEVEN = 1.25
"""A process may read so many times its equal share of the tokens: rows are whole, and passes are padded."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process computes."""
    return steps(tmp_path_factory.mktemp("alone"), 1, list(VARIANTS))[0]


def steps(folder: Path, processes: int, variants: list[str]) -> list[dict[str, Any]]:
    """What each process has, by variant."""
    target = folder / f"{processes}.pt"
    code, output = run(processes, JOB, target, json.dumps({name: SETTINGS | VARIANTS[name] for name in variants}))
    assert code == 0, output
    found: list[dict[str, Any]] = torch.load(target)
    assert {one["processes"] for process in found for one in process.values()} == {len(found)} == {processes}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "variants"), [(2, list(VARIANTS)), (3, ["plain", "few", "sharded, few"]), (4, ["plain", "sharded"])]
)
def test_several_processes_compute_what_one_does(
    tmp_path: Path, alone: dict[str, Any], processes: int, variants: list[str]
) -> None:
    """Also with fewer sequences than processes, where some have nothing to do."""
    first, *others = steps(tmp_path, processes, variants)
    for name, together in first.items():
        compare(alone[name], together)
        for other in others:
            same_bits(together, other[name])
    if processes == 2:  # with more of them the few rows of a minibatch cannot be dealt out evenly
        shares = [process["plain"]["read"] / alone["plain"]["read"] for process in (first, *others)]
        assert max(shares) < UNEVEN / processes, "each computes its part, and not all of it"


def compare(alone: dict[str, Any], together: dict[str, Any]) -> None:
    for one, other in zip(alone["steps"], together["steps"], strict=True):
        assert one["texts"] == other["texts"]
        assert one["rewards"] == pytest.approx(other["rewards"], abs=1e-5)
        for name, value in one["metrics"].items():
            assert other["metrics"][name] == pytest.approx(value, rel=METRICS, abs=METRICS, nan_ok=True), name
        for name, column in one["columns"].items():
            assert torch.allclose(column.double(), other["columns"][name].double(), atol=1e-4), name
    assert len(alone["gradients"]) == len(together["gradients"]) > 0
    for one, other in zip(alone["gradients"], together["gradients"], strict=True):
        assert float((one - other).abs().max()) <= GRADIENTS * float(one.abs().max())
    for name, value in alone["weights"].items():
        assert float((value - together["weights"][name]).abs().max()) < WEIGHTS, name


def same_bits(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two processes of a job have the same table, metrics and weights, not nearly the same."""
    for mine, theirs in zip(one["steps"], other["steps"], strict=True):
        assert mine["texts"] == theirs["texts"]
        assert mine["rewards"] == theirs["rewards"]
        assert repr(mine["metrics"]) == repr(theirs["metrics"])
        assert mine["columns"].keys() == theirs["columns"].keys()
        assert all(torch.equal(column, theirs["columns"][name]) for name, column in mine["columns"].items())
    assert all(torch.equal(value, other["weights"][name]) for name, value in one["weights"].items())
