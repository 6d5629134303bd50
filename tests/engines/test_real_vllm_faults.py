"""Real vLLM servers that are lost or stand still: `make test-vllm`. Elsewhere these tests are skipped."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ppolm.base_setup.model_setup import setup_models
from ppolm.data.load_rows import load_prompts
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.engines.vllm_pool import Patience
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from tests.conftest import PROMPTS
from tests.engines.real_server import CLOSE, PYTHON, RealServer, demo

pytestmark = pytest.mark.skipif(not PYTHON, reason="needs vLLM, which `make test-vllm` installs and starts")


def test_a_server_that_is_killed_in_mid_run_and_started_again(
    real: list[RealServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies in the middle of a rollout. The other one does its work; when it is back, it is used again."""
    urls = tuple(server.url for server in real)
    quick: dict[str, Any] = {
        "max_steps": 6,
        "eval_every": 0,
        "eval_prompts": None,
        "judge": None,
        "max_eval_prompts": 64,
    }
    trainer = PPOTrainer(demo(tmp_path, engine="vllm", engine_url=urls, **quick))
    assert isinstance(trainer.generator.engine, VllmEngine)
    client = trainer.generator.engine.pool.servers[0].client
    ask, asked, rewards, steps = client.sample, list[int](), trainer.reward_computer.compute_rewards, list[int]()

    def killed(name: str, job: Any) -> Any:
        asked.append(job.number)
        if len(asked) == 24 + 12:  # half of its requests of the second step
            real[0].kill()
        return ask(name, job)

    def restarted(*arguments: Any) -> Any:
        steps.append(len(steps))
        if len(steps) == 4:
            real[0].start().wait()
        return rewards(*arguments)

    monkeypatch.setattr(client, "sample", killed)
    monkeypatch.setattr(trainer.reward_computer, "compute_rewards", restarted)
    results = trainer.train(load_prompts("embedded"))
    print("moved", [row["engine_moved"] for row in results.metrics])
    assert results.steps == 6
    assert [row["engine_servers"] for row in results.metrics] == [2, 1, 1, 1, 2, 2]
    assert results.metrics[0]["engine_moved"] == 0
    assert results.metrics[1]["engine_moved"] >= 12
    assert all(row["sampler_mismatch"] < CLOSE for row in results.metrics)


def test_a_server_whose_engine_stands_still_is_given_up_although_it_says_that_it_is_healthy(
    real: list[RealServer], tmp_path: Path
) -> None:
    """Its counts of tokens no longer change. When it goes on, it is used again."""
    models, patience = setup_models(demo(tmp_path)), Patience(alone=5.0, stalled=10.0)
    engine = VllmEngine(models.policy, [one.url for one in real], str(tmp_path / "a"), patience=patience)
    server = engine.pool.servers[0]

    def texts() -> list[str]:
        return [str(text) for text in Generator(engine, models.setup, Sampling(32), 3, 2).generate(PROMPTS)[0]]

    before = server.client._progress()
    expected, stopped = texts(), real[0].engine_processes()
    assert isinstance(before, list)
    assert server.client._progress() != before, "it counts tokens"
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        assert texts() == expected
        print("given up:", server.down)
        assert str(server.down).startswith("has made no progress for ")
        assert server.client.is_healthy()
        assert texts() == expected, "without waiting for it again"
        assert "within 5 s" in str(server.down)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert texts() == expected
    assert server.down is None
    engine.release()
