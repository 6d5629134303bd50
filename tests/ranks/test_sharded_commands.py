"""The commands with a sharded base: a run resumes on one process, SFT and reward training agree with one process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.ranks.launching import TRAIN, metrics, run, same

pytestmark = pytest.mark.slow


def ppolm(processes: int, folder: Path, *arguments: str) -> str:
    code, output = run(processes, "ppolm", *arguments, cwd=folder)
    assert code == 0, output
    return output


def test_a_run_resumes_sharded_or_not_on_any_number_of_processes_with_equal_evaluations(tmp_path: Path) -> None:
    flags = [*TRAIN, "--min-delta", "0.001"]  # or rounding decides whether an equal reward is the best so far
    ppolm(1, tmp_path, "train", *flags, "--max-steps", "4", "--run-name", "whole")
    ppolm(2, tmp_path, "train", *flags, "--max-steps", "2", "--run-name", "x", "--shard-base")
    ppolm(1, tmp_path, "train", *flags, "--max-steps", "2", "--run-name", "alone")
    shutil.copytree(tmp_path / "runs" / "x", tmp_path / "runs" / "no longer")
    for name, processes, shards in (
        ("x", 1, []),
        ("no longer", 2, ["--no-shard-base"]),
        ("alone", 2, ["--shard-base"]),
    ):
        ppolm(processes, tmp_path, "train", "--resume", f"runs/{name}", "--max-steps", "4", *shards)
        assert same(metrics(tmp_path / "runs" / "whole"), metrics(tmp_path / "runs" / name)), name
    policy = tmp_path / "runs" / "x" / "best" / "adapter_model.safetensors"
    assert policy.stat().st_size == (tmp_path / "runs" / "whole" / "best" / policy.name).stat().st_size


@pytest.mark.parametrize("command", ["sft", "reward"])
def test_supervised_training_on_a_sharded_base_is_the_same(tmp_path: Path, command: str) -> None:
    pairs = [
        {"prompt": f"Question {i}?", "chosen": f"The answer to {i} is good.", "rejected": "No."} for i in range(25)
    ]
    rows = pairs if command == "reward" else [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--model-name", "embedded", "--data", "rows.jsonl", "--batch-size", "8", "--learning-rate", "1e-3"]
    flags += ["--threads", "1", "--lora-dropout", "0", "--microbatch-tokens", "64"]
    found = []
    for processes, shards in ((1, []), (2, ["--shard-base"])):
        ppolm(processes, tmp_path, command, *flags, "--output", f"out-{processes}", *shards)
        found.append(json.loads((tmp_path / f"out-{processes}" / "training.json").read_text())["validation"])
    assert same(found[0], found[1])
    assert found[0][-1]["loss"] < found[0][0]["loss"]
