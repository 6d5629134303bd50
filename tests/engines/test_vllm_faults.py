"""Servers that die, hang, answer garbage or come back: their work is moved, and nothing is lost or wrong."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.errors import EngineError
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from tests.conftest import PROMPTS
from tests.engines.conftest import QUICK, Train
from tests.engines.small_server import Fault, SmallServer
from tests.tiny_models import make_model_folder

MakeEngine = Callable[..., VllmEngine]


def rollout(models: Models, engine: VllmEngine) -> tuple[list[str], torch.Tensor]:
    texts, logprobs = Generator(engine, models.setup, Sampling(8), 0, 2).generate(PROMPTS)
    return [str(text) for text in texts], torch.cat(logprobs)


@pytest.mark.parametrize("fault", ["hang", "503", "not json", "no tokens", "cut short"])
def test_the_work_of_a_bad_server_goes_to_the_other_and_the_texts_are_the_same(
    models: Models,
    make_engine: MakeEngine,
    servers: list[SmallServer],
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
) -> None:
    engine = make_engine()
    texts, logprobs = rollout(models, engine)
    servers[0].fault = fault
    again, same = rollout(models, engine)
    assert again == texts
    torch.testing.assert_close(same, logprobs, atol=1e-5, rtol=0)
    assert [server.url for server in engine.pool.up] == [servers[1].url]
    assert f"Server {servers[0].url} " in caplog.text


def test_a_server_that_dies_in_the_middle_of_a_rollout_loses_nothing(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer], caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine()
    texts, _ = rollout(models, engine)
    servers[0].fault = "stuck"
    threading.Timer(0.3, servers[0].stop).start()
    assert rollout(models, engine)[0] == texts
    assert engine.metrics()["engine_servers"] == 1
    assert engine.metrics()["engine_moved"] >= 3
    assert f"Server {servers[0].url} " in caplog.text


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("fault", ["stuck", "engine stuck"])
def test_a_server_that_only_pretends_to_live_is_given_up_long_before_the_time_limit(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer], fault: Fault, counts: bool, train: Train
) -> None:
    """It says that it is healthy. Later steps do not wait for it either, and it is used again when it works."""
    servers[0].counts = counts
    engine = make_engine(timeout=100_000.0, patience=dataclasses.replace(QUICK, look=0.1, stalled=1.5))
    texts, _ = rollout(models, engine)
    servers[0].fault = fault
    assert rollout(models, engine)[0] == texts
    assert str(engine.pool.servers[0].down).startswith("has made no progress for ")
    train()
    rollout(models, engine)
    assert engine.pool.servers[0].down == "did not answer /v1/completions within 3 s"
    servers[0].fault = None
    rollout(models, engine)
    assert engine.pool.servers[0].down is None


@pytest.mark.parametrize("counts", [True, False])
def test_a_server_that_is_slow_is_not_given_up(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer], counts: bool
) -> None:
    """Told by its count of tokens, or where there is none by its answers to requests for one token."""
    servers[0].counts = counts
    engine = make_engine(patience=dataclasses.replace(QUICK, look=0.1, stalled=2.5))
    texts, _ = rollout(models, engine)
    servers[0].fault, servers[0].slow_seconds = "slow", 4.0
    assert rollout(models, engine)[0] == texts
    assert len(engine.pool.up) == 2
    assert engine.pool.moved == 0


def test_a_server_that_hangs_before_it_has_ever_answered_has_the_whole_time_limit_but_only_once(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    """It may be compiling."""
    engine = make_engine(timeout=6.0, patience=dataclasses.replace(QUICK, look=0.1, stalled=0.5))
    texts, _ = rollout(models, engine)
    servers[0].stop()
    rollout(models, engine)
    servers[0].start()
    servers[0].fault = "engine stuck"
    assert rollout(models, engine)[0] == texts
    assert engine.pool.servers[0].down == "did not answer /v1/completions within 6 s"
    assert rollout(models, engine)[0] == texts
    assert engine.pool.servers[0].down == "did not answer /v1/completions within 3 s"


def test_a_server_that_comes_back_without_its_adapters_is_used_again(
    models: Models,
    make_engine: MakeEngine,
    servers: list[SmallServer],
    train: Train,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = make_engine()
    train()
    texts, _ = rollout(models, engine)
    servers[0].stop()
    assert rollout(models, engine)[0] == texts
    servers[0].start()
    servers[0].requests.clear()
    assert rollout(models, engine)[0] == texts
    assert f"Server {servers[0].url} is back." in caplog.text
    assert any(request["model"] != "base" for request in servers[0].requests)


def test_a_server_that_was_restarted_unnoticed_is_given_its_adapter_again(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer], train: Train
) -> None:
    engine = make_engine(servers[0])
    train()
    texts, _ = rollout(models, engine)
    servers[0].stop()
    servers[0].start()
    assert rollout(models, engine)[0] == texts


def test_a_single_server_is_waited_for_while_it_starts_again(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    engine = make_engine(servers[0], patience=dataclasses.replace(QUICK, alone=60.0))
    texts, _ = rollout(models, engine)
    servers[0].stop()
    threading.Timer(0.5, servers[0].start).start()
    assert rollout(models, engine)[0] == texts


def test_when_no_server_is_left_every_one_is_named_with_its_reason(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    engine = make_engine()
    servers[0].stop()
    servers[1].fault = "503"
    with pytest.raises(EngineError) as caught:
        rollout(models, engine)
    said = str(caught.value)
    assert said.startswith("No server is left: ")
    assert f"{servers[0].url} could not be reached" in said
    assert servers[1].url in said
    assert "resume" in said


def test_a_server_that_comes_back_with_another_model_is_not_used_and_the_run_goes_on(
    models: Models,
    make_engine: MakeEngine,
    servers: list[SmallServer],
    make_config: Callable[..., PPOConfig],
    tmp_path: Path,
) -> None:
    engine = make_engine()
    servers[0].stop()
    texts, _ = rollout(models, engine)
    servers[0].models = setup_models(make_config(model_name=str(make_model_folder(tmp_path / "other", seed=1))))
    servers[0].start()
    assert rollout(models, engine)[0] == texts
    assert "serves another model" in str(engine.pool.servers[0].down)


def test_a_request_that_every_server_refuses_ends_the_run_at_once(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    engine = make_engine()
    start, sent = time.monotonic(), sum(len(server.requests) for server in servers)
    body: Any = [[models.setup.text_config.vocab_size + 5]]
    with pytest.raises(EngineError, match=r"refuses a request: it answered 400 .*out of vocabulary"):
        engine.generate(body, Sampling(4), torch.rand(1, 4, dtype=torch.float64))
    assert sum(len(server.requests) for server in servers) == sent
    assert time.monotonic() - start < QUICK.alone * 10
