"""Bit-for-bit comparison of runs: their settings, metrics and tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ppolm.storage.metrics_log import read_metrics

STATEFUL: dict[str, Any] = {
    "normalize_rewards": "running",
    "adaptive_kl": True,
    "kl_horizon": 20,
    "kl_target": 0.2,
    "lr_schedule": "cosine",
    "warmup_steps": 2,
    "replay_rollouts": 2,
    "eval_every": 2,
    "eval_fraction": 0.15,
    "checkpoint_every": 3,
    "num_epochs": 2,
    "max_steps": 6,
    "table_every": 1,
    "collapse_reward_drop": 1e6,  # the reward is noise, and these runs must not stop early
}


def tensors(run: Path, step: int = 6) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint: adapters, head, optimiser moments and random generators."""
    folder = run / "checkpoints" / f"step-{step:06d}"
    files = sorted(folder.rglob("*.safetensors"))
    assert len(files) in (5, 8), "with the copy of the best policy, where there are evaluations"
    return {f"{file.relative_to(folder)}:{key}": value for file in files for key, value in load_file(file).items()}


def numbers(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    rows = read_metrics(run, kind)
    return [{name: value for name, value in row.items() if not name.startswith("seconds/")} for row in rows]


def assert_same_run(one: Path, other: Path) -> None:
    assert numbers(one) == numbers(other)
    assert numbers(one, "eval") == numbers(other, "eval")
    left, right = tensors(one), tensors(other)
    assert left.keys() == right.keys()
    assert all(torch.equal(value, right[name]) for name, value in left.items())
    states = [json.loads((run / "checkpoints/step-000006/state.json").read_text()) for run in (one, other)]
    for state in states:
        del state["progress"]["config"]["run_name"]
    assert states[0] == states[1]
