"""A base in shards: every architecture gives the numbers of one process, and each process holds only its part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.architectures import make_architecture
from tests.ranks.launching import run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ranks, sharded")]
FAMILIES = ("llama (tied)", "gemma3n_text", "gpt2", "falcon (ALiBi)", "mixtral", "qwen3_next", "mamba", "zamba2")
JOB = "tests.ranks.sharded_job"


def compute(folder: Path, processes: int, dtype: str, families: tuple[str, ...]) -> list[dict[str, Any]]:
    """What every process found, by family."""
    folders = {name: str(make_architecture(name, folder / f"{i}")) for i, name in enumerate(families)}
    target = folder / f"{processes}.pt"
    code, output = run(processes, JOB, target, dtype, *folders.values())
    assert code == 0, output
    return [{name: found[folders[name]] for name in families} for found in torch.load(target)]


@pytest.mark.parametrize(("dtype", "families"), [("float32", FAMILIES), ("bfloat16", ("llama (tied)", "gpt2"))])
def test_a_sharded_base_gives_the_numbers_of_a_whole_one(tmp_path: Path, dtype: str, families: tuple[str, ...]) -> None:
    (alone,), together = (compute(tmp_path, processes, dtype, families) for processes in (1, 2))
    limit = 2e-5 if dtype == "float32" else 2e-2
    for name in families:
        one, first, second = alone[name], together[0][name], together[1][name]
        if isinstance(first, str):
            assert name == "zamba2", (name, first)
            assert first == "Model MODEL cannot be sharded: its blocks share weights. Leave shard_base out."
            continue
        alone_pass, no_room = first["refused"]
        assert alone_pass.startswith("One process cannot compute with a sharded base alone")
        assert "sampling here needs all of them. Set engine: vllm" in no_room
        for key in ("logprobs", "values", "rewards", "gradient"):
            assert torch.equal(first[key], second[key]), (name, key)
            off = float((first[key] - one[key]).abs().max() / one[key].abs().max())
            assert off < limit, (name, key, off)
        if dtype == "float32":
            assert [ids for ids, _ in first["sampled"]] == [ids for ids, _ in one["sampled"]], name
        for found in (first, second):
            check_parts(name, found, one)


def check_parts(name: str, found: dict[str, Any], alone: dict[str, Any]) -> None:
    assert found["whole at once"] <= 2, (name, "one block, and at last what is outside the blocks")
    for moment in ("parts", "parts afterwards"):
        held, whole = found[moment], alone[moment]
        assert held["rest"] == whole["rest"], "embeddings, norm and output matrix are whole"
        assert held["tied"] == whole["tied"], name
        assert held["all of the blocks"] == whole["blocks"], name
        assert held["blocks"] < 0.6 * whole["blocks"], (name, moment, "half of it, and padding of small ones")
