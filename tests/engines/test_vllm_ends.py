"""How a training on servers ends: stopped, failed or finished, nothing is lost, and nothing is left behind."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.errors import EngineError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.storage.stop_signals import Stopped
from tests.conftest import PROMPTS, spread
from tests.engines.conftest import QUICK, MakeConfig, numbers
from tests.engines.small_server import RefusedError, SmallServer

LONG = dataclasses.replace(QUICK, stalled=60.0, look=0.3, silences=1000)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch, served: MakeConfig) -> MakeConfig:
    """Servers are waited for longer than a test takes."""
    monkeypatch.setattr("ppolm.engines.vllm_engine.Patience", lambda: LONG)
    return served


class Killed:
    """A reward that lets the servers stand still from its first call on, and sends signals some time later."""

    def __init__(self, servers: list[SmallServer], at_call: int, *signals: int) -> None:
        self.servers, self.at_call, self.signals = servers, at_call, signals
        self.calls, self.sent = 0, 0.0
        self.generator: Any = None

    def __call__(self, prompts: list[str], responses: list[Any]) -> list[float]:
        self.calls += 1
        if self.calls == 1:
            self.generator.state_dict()  # waits for what is under way
            for server in self.servers:
                server.fault = "stuck"
        if self.calls == self.at_call:
            threading.Thread(target=self.send, daemon=True).start()
        return spread(prompts, responses)

    def send(self) -> None:
        time.sleep(1.5)
        for number in self.signals:
            self.sent = time.monotonic()
            os.kill(os.getpid(), number)
            time.sleep(0.5)


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_stop_does_not_wait_for_responses_and_the_run_goes_on_later(
    patient: MakeConfig, servers: list[SmallServer], ahead: bool, signals: list[int]
) -> None:
    """With rollouts ahead the first step takes one that is under way, and the second waits for its own."""
    config = patient(async_rollouts=ahead, eval_every=0, checkpoint_every=100)
    reward = Killed(servers, 2 if ahead else 1, *signals)
    trainer = PPOTrainer(config, reward={"spread": reward})
    reward.generator = trainer.generator
    with pytest.raises(Stopped, match="after step 2 of 4" if ahead else "after step 1 of 4"):
        trainer.train(PROMPTS)
    assert time.monotonic() - reward.sent < 1.5
    for server in servers:
        server.fault = None
    resumed = PPOTrainer(config, reward={"spread": spread}).train(PROMPTS, resume=f"{config.output_dir}/run")
    assert resumed.steps == 4
    assert resumed.metrics[0].get("staleness") == (0 if ahead else None), "sampled afresh"


def test_a_checkpoint_that_waits_for_a_rollout_ahead_can_be_stopped(
    patient: MakeConfig, servers: list[SmallServer]
) -> None:
    config = patient(async_rollouts=True, eval_every=0, checkpoint_every=2)
    reward = Killed(servers, 2, signal.SIGTERM)
    trainer = PPOTrainer(config, reward={"spread": reward})
    reward.generator = trainer.generator
    with pytest.raises(Stopped, match="after step 2 of 4; all of it is saved"):
        trainer.train(PROMPTS)
    assert time.monotonic() - reward.sent < 1.5


def test_a_rollout_that_is_given_up_leaves_its_random_numbers(patient: MakeConfig, servers: list[SmallServer]) -> None:
    trainer: Any = PPOTrainer(patient(async_rollouts=True), reward=spread)
    generator = trainer.generator
    for server in servers:
        server.fault = "stuck"
    before = generator.random.get_state()
    generator._rollout = generator._begin([[5, 6], [7, 8]])
    remembered = generator.remember()
    generator.give_up()
    assert torch.equal(generator.random.get_state(), before)
    assert generator.state_dict()["ahead"] is None
    generator.go_back(remembered)
    assert generator._rollout is remembered[1]
    trainer.release()
    assert torch.equal(generator.random.get_state(), before)


def test_a_request_that_fails_everywhere_ends_the_run_which_is_saved_and_resumed(
    served: MakeConfig, servers: list[SmallServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = served(eval_every=0, checkpoint_every=100)
    whole = PPOTrainer(dataclasses.replace(config, run_name="whole"), reward=spread).train(PROMPTS)
    bad, calls = threading.Event(), list[int]()
    for server in servers:
        well = server.answer

        def answer(path: str, body: dict[str, Any], well: Any = well) -> bytes:
            if bad.is_set() and path == "/v1/completions" and body["max_tokens"] > 1:
                raise RefusedError(500, "out of memory")
            return bytes(well(path, body))

        monkeypatch.setattr(server, "answer", answer)

    def breaking(prompts: list[str], responses: list[Any]) -> list[float]:
        calls.append(1)
        if len(calls) == 2:
            bad.set()
        return spread(prompts, responses)

    with pytest.raises(EngineError, match=r"failed 6 times.*out of memory|do not do their work.*out of memory"):
        PPOTrainer(config, reward={"spread": breaking}).train(PROMPTS)
    bad.clear()
    resumed = PPOTrainer(config, reward={"spread": spread}).train(PROMPTS, resume=f"{config.output_dir}/run")
    assert numbers(resumed) == numbers(whole)[2:]


# ---- what is left behind --------------------------------------------------------------------------------------------


def test_a_run_that_ends_leaves_no_adapter_no_folder_and_no_model(
    served: MakeConfig, servers: list[SmallServer]
) -> None:
    bases = []
    for name in ("one", "two"):
        trainer = PPOTrainer(served(run_name=name, max_steps=1, eval_every=0), reward=spread)
        runs = trainer.train(PROMPTS).run_dir.parent
        bases.append(weakref.ref(trainer.models.setup.causal_lm))
        assert [dict(server.adapters) for server in servers] == [{}, {}]
        del trainer
        gc.collect()
    assert [base() for base in bases] == [None, None]
    assert sorted(path.name for path in runs.iterdir()) == ["one", "two"]


def test_a_trainer_can_be_used_after_its_run(served: MakeConfig, servers: list[SmallServer]) -> None:
    trainer = PPOTrainer(served(max_steps=1), reward=spread)
    runs = trainer.train(PROMPTS).run_dir.parent
    loads = list(servers[0].loads)
    trainer.ppo_step(PROMPTS[:2])
    texts, _ = trainer.generator.fork(0).generate(PROMPTS)
    assert len(texts) == len(PROMPTS)
    assert len(servers[0].adapters) == 2
    assert not set(servers[0].loads[len(loads) :]) & set(loads), "no name is used twice"
    trainer.release()
    assert not servers[0].adapters
    assert [path.name for path in runs.iterdir()] == ["run"]


def test_an_engine_that_nobody_releases_is_cleaned_up_with_its_models(
    make_config: Callable[..., PPOConfig], servers: list[SmallServer], tmp_path: Path
) -> None:
    models = setup_models(make_config())
    engine = VllmEngine(models.policy, [servers[0].url], str(tmp_path / "adapters"), patience=QUICK, ours=True)
    base = weakref.ref(models.setup.causal_lm)
    assert servers[0].adapters
    del engine, models
    gc.collect()
    assert base() is None
    assert not servers[0].adapters
    assert not (tmp_path / "adapters").exists()


def test_a_start_that_fails_leaves_nothing(
    make_config: Callable[..., PPOConfig], servers: list[SmallServer], tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    servers[0].max_rank = 1
    with pytest.raises(EngineError, match="max-lora-rank"):
        VllmEngine(setup_models(make_config()).policy, [servers[0].url], str(tmp_path / "shared"), patience=QUICK)
    assert [path.name for path in tmp_path.glob("shared/*")] == []
    assert (tmp_path / "shared").is_dir(), "somebody else's folder stays"
