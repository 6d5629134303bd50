"""Servers that sample for a job of several processes: asked once for all of them, with the same result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from ppolm.config import PPOConfig
from tests.engines.small_server import SmallServer
from tests.ranks.launching import metrics, run, same

REWARD = "def score(prompts, responses):\n    return [float(len(set(response))) for response in responses]\n"


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
        dataclasses.replace(config, run_name=name).to_yaml(tmp_path / f"{name}.yaml")
        before = [len(server.requests) for server in servers], [len(server.loads) for server in servers]
        code, output = run(processes, "ppolm", "train", "--config", tmp_path / f"{name}.yaml", cwd=tmp_path)
        assert code == 0, output
        after = [len(server.requests) for server in servers], [len(server.loads) for server in servers]
        asked.append([[new - old for new, old in zip(*pair, strict=True)] for pair in zip(after, before, strict=True)])
    assert asked[0] == asked[1], "as many samples and adapters as for one process"
    assert same(metrics(tmp_path / "runs" / "of-1"), metrics(tmp_path / "runs" / "of-2"))


def test_rollouts_ahead_are_for_one_process_and_say_so(config: PPOConfig, tmp_path: Path) -> None:
    dataclasses.replace(config, async_rollouts=True, run_name="x").to_yaml(tmp_path / "x.yaml")
    code, output = run(2, "ppolm", "train", "--config", tmp_path / "x.yaml", cwd=tmp_path)
    assert code != 0
    assert "async_rollouts works in one process so far." in output
