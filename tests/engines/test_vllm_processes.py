"""Servers that sample for a job of several processes: asked once for all of them, with the same result."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ppolm.config import PPOConfig
from tests.engines.small_server import SmallServer
from tests.ranks.launching import metrics, run, same, start

pytestmark = pytest.mark.slow
REWARD = """
from pathlib import Path

def score(prompts, responses):
    calls = Path(__file__).parent / "calls"
    if calls.exists():
        left = calls.read_text()
        if not left:
            raise ValueError("out of words")
        calls.write_text(left[1:])
    return [float(len(set(response))) for response in responses]
"""
"""A reward that fails after as many calls as the file has letters, if there is one."""


@pytest.fixture
def config(make_config: Callable[..., PPOConfig], servers: list[SmallServer], tmp_path: Path) -> PPOConfig:
    for server in servers:
        server.max_loras = 3
    (tmp_path / "mine.py").write_text(REWARD)
    (tmp_path / "prompts.txt").write_text("".join(f"the cat number {i} sat\n" for i in range(16)))
    return make_config(
        engine="vllm",
        engine_url=tuple(server.url for server in servers),
        max_steps=2,
        eval_every=0,
        threads=1,
        prompts=str(tmp_path / "prompts.txt"),
        reward=(f"{tmp_path / 'mine.py'}:score",),
        output_dir=str(tmp_path / "runs"),
    )


def test_two_processes_ask_the_servers_once(config: PPOConfig, servers: list[SmallServer], tmp_path: Path) -> None:
    asked = []
    for processes in (1, 2):
        name = f"of-{processes}"
        sharded = dataclasses.replace(config, run_name=name, shard_base=True)  # then no process can score alone
        sharded.to_yaml(tmp_path / f"{name}.yaml")
        before = [len(server.requests) for server in servers], [len(server.loads) for server in servers]
        code, output = run(processes, "ppolm", "train", "--config", tmp_path / f"{name}.yaml", cwd=tmp_path)
        assert code == 0, output
        after = [len(server.requests) for server in servers], [len(server.loads) for server in servers]
        asked.append([[new - old for new, old in zip(*pair, strict=True)] for pair in zip(after, before, strict=True)])
    assert asked[0] == asked[1], "as many samples and adapters as for one process"
    assert same(metrics(tmp_path / "runs" / "of-1"), metrics(tmp_path / "runs" / "of-2"))


def train(processes: int, folder: Path, *arguments: str | Path) -> str:
    code, output = run(processes, "ppolm", "train", *arguments, cwd=folder)
    assert code == 0, output
    return output


def texts(run_folder: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (run_folder / "samples.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in ("step", "prompt", "response")} for row in rows]


def test_rollouts_ahead_are_the_same_in_two_processes_and_resume(config: PPOConfig, tmp_path: Path) -> None:
    """The job of two loses its reward in the third step; its checkpoint has the rollout that was sampled ahead."""
    ahead = dataclasses.replace(config, async_rollouts=True, max_steps=4, checkpoint_every=1, samples_per_step=8)
    for name in ("whole", "lost"):
        dataclasses.replace(ahead, run_name=name).to_yaml(tmp_path / f"{name}.yaml")
    train(1, tmp_path, "--config", tmp_path / "whole.yaml")
    (tmp_path / "calls").write_text("x" * 2)
    code, output = run(2, "ppolm", "train", "--config", tmp_path / "lost.yaml", cwd=tmp_path)
    assert code != 0
    assert "out of words" in output
    (tmp_path / "calls").unlink()
    train(2, tmp_path, "--resume", tmp_path / "runs" / "lost")
    whole = metrics(tmp_path / "runs" / "whole")
    assert [row["staleness"] for row in whole if row["kind"] == "train"] == [0, 1, 1, 1]
    assert same(whole, metrics(tmp_path / "runs" / "lost"))
    assert texts(tmp_path / "runs" / "lost") == texts(tmp_path / "runs" / "whole")


def test_a_rollout_ahead_that_fails_ends_all_processes_with_one_error(
    config: PPOConfig, servers: list[SmallServer], tmp_path: Path
) -> None:
    ahead = dataclasses.replace(config, async_rollouts=True, max_steps=400, num_epochs=400, run_name="x")
    ahead.to_yaml(tmp_path / "x.yaml")
    with start(2, "ppolm", "train", "--config", tmp_path / "x.yaml", cwd=tmp_path) as job:
        while not (tmp_path / "runs" / "x" / "metrics.jsonl").exists():
            assert job.code is None, job.out
            time.sleep(0.1)
        for server in servers:
            server.fault = "400"
        assert job.end(200) != 0
        output = job.out
    assert len(re.findall("^error: Server .* refuses a request", output, re.MULTILINE)) == 1, output
    assert "src/ppolm" not in output
