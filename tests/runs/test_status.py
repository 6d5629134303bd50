"""status.json of a real run: what it says while it runs, and however it ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.errors import RewardError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.runs.run_overview import overview
from ppolm.runs.run_status import read_status
from tests.conftest import PROMPTS, spread
from tests.warm import start_warm

SMALL = ["--batch-size", "2", "--minibatch-size", "2", "--max-new-tokens", "4", "--lora-r", "2", "--log-to"]
EVALUATED = ["--eval-every", "1", "--max-eval-prompts", "2"]


def train_flags(model: Path, folder: Path) -> list[str]:
    """A tiny run of the command line in a folder."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    (folder / "rewards.py").write_text(
        "import time\n"
        "def score(prompts, responses):\n    return [float(len(text)) for text in responses]\n"
        "def slow(prompts, responses):\n    time.sleep(0.3)\n    return score(prompts, responses)\n"
        "def bad(prompts, responses):\n    raise ValueError('out of cheese')\n"
    )
    flags = ["train", "--model-name", str(model), "--prompts", str(prompts), "--output-dir", str(folder / "runs")]
    return [*flags, "--run-name", "run", *SMALL]


def test_a_run_says_that_it_runs_and_for_how_long_then_its_verdict(make_config: Callable[..., PPOConfig]) -> None:
    seen: list[Any] = []
    folder = Path(make_config().output_dir) / "run"

    def watched(prompts: list[str], responses: list[Any]) -> list[float]:
        seen.append((read_status(folder), overview(folder)))
        return spread(prompts, responses)

    PPOTrainer(make_config(eval_every=2, max_steps=3, max_eval_prompts=2), reward=watched).train(PROMPTS, None)
    status, glance = seen[0]
    assert (status.state, status.total_steps, status.ended) == ("running", 3, None)
    assert glance.state == "running"
    ended = read_status(folder)
    assert ended is not None
    assert (ended.state, ended.total_steps, ended.started) == ("finished", 3, status.started)
    assert ended.ended is not None
    assert ended.verdict in ("improved", "unclear", "unchanged", "suspect")
    assert ended.reasons
    assert overview(folder).state == "finished"


def test_the_command_writes_it_and_says_how_to_see_the_run(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = train_flags(model_folder, tmp_path)
    reward = ["--reward", f"{tmp_path}/rewards.py:score"]
    assert ppolm([*flags, *reward, *EVALUATED, "--max-steps", "1"]) == 0
    run = tmp_path / "runs" / "run"
    assert capsys.readouterr().out.splitlines()[-1] == f"See it:      ppolm studio {run}"
    first = read_status(run)
    assert first is not None
    assert first.state == "finished"
    early = "2001-01-01T00:00:00+00:00"
    (run / "status.json").write_text(json.dumps({**first.to_dict(), "started": early}))
    assert ppolm(["train", "--resume", str(run), "--max-steps", "2"]) == 0
    resumed = read_status(run)
    assert resumed is not None
    assert (resumed.state, resumed.total_steps, resumed.started) == ("finished", 2, early), "the first start counts"


def test_a_reward_that_fails_is_why_the_run_failed(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*train_flags(model_folder, tmp_path), "--reward", f"{tmp_path}/rewards.py:bad", "--eval-every", "0"]
    assert ppolm([*flags, "--max-steps", "1"]) == 1
    capsys.readouterr()
    status = read_status(tmp_path / "runs" / "run")
    assert status is not None
    assert status.state == "failed"
    assert status.ended is not None
    assert "out of cheese" in status.why
    assert overview(tmp_path / "runs" / "run").why == status.why


def test_a_failed_run_that_is_resumed_says_nothing_more_of_its_failure(make_config: Callable[..., PPOConfig]) -> None:
    cheese: list[float] = []

    def needy(prompts: list[str], responses: list[Any]) -> list[float]:
        return spread(prompts, responses) if cheese else [cheese[0]]

    config = make_config(eval_every=0, max_steps=1)
    with pytest.raises(RewardError):
        PPOTrainer(config, reward=needy).train(PROMPTS, None)
    run = Path(config.output_dir) / "run"
    cheese.append(1.0)
    PPOTrainer(config, reward=needy).train(PROMPTS, None, resume=run)
    status = read_status(run)
    assert status is not None
    assert (status.state, status.why) == ("finished", "")


def test_a_run_that_a_signal_stopped_says_so(model_folder: Path, tmp_path: Path) -> None:
    flags = [*train_flags(model_folder, tmp_path), "--reward", f"{tmp_path}/rewards.py:slow", "--eval-every", "0"]
    run = tmp_path / "runs" / "run"
    with start_warm("ppolm", *flags, "--max-steps", "500") as child:
        until = time.monotonic() + 120
        while not (run / "metrics.jsonl").exists() and time.monotonic() < until and child.code is None:
            time.sleep(0.1)
        running = read_status(run)
        os.kill(child.pid, signal.SIGINT)
        assert child.end(120) == 130, child.err
    assert running is not None
    assert (running.state, running.total_steps) == ("running", 500)
    status = read_status(run)
    assert status is not None
    assert (status.state, status.started) == ("interrupted", running.started)
    assert overview(run).why == "by a signal (Ctrl-C, SIGTERM)"
