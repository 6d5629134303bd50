"""One rollout on several servers: what counts as a fault, of whom, and when it is over."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import Models
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.engines.vllm_pool import AbandonedError, Patience
from ppolm.engines.vllm_server import Version
from ppolm.errors import EngineError
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampled, Sampling
from tests.conftest import PROMPTS
from tests.engines.conftest import QUICK, Train
from tests.engines.small_server import RefusedError, SmallServer

MakeEngine = Callable[..., VllmEngine]
Answer = Callable[[str, dict[str, Any]], bytes]


def rollout(models: Models, engine: VllmEngine) -> list[str]:
    return [str(text) for text in Generator(engine, models.setup, Sampling(8), 0, 2).generate(PROMPTS)[0]]


def ask(engine: VllmEngine, version: Version, jobs: int, stop: threading.Event | None = None) -> list[Sampled]:
    uniforms = torch.rand(jobs, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return engine.sample(version, [[3 + i, 4, 5] for i in range(jobs)], Sampling(8), uniforms, stop)


def sampled(server: SmallServer) -> int:
    return sum(request["model"] != "base" for request in server.requests)


def answers(server: SmallServer, bad: Callable[[dict[str, Any]], bytes | None]) -> None:
    """Let a server answer requests for more than one token with what ``bad`` returns, if it is not None."""
    well = server.answer

    def answer(path: str, body: dict[str, Any]) -> bytes:
        sampling = path == "/v1/completions" and body.get("prompt_logprobs") is None and body["max_tokens"] > 1
        said = bad(body) if sampling else None
        return well(path, body) if said is None else said

    server.answer = answer  # type: ignore[method-assign]


@pytest.mark.parametrize("jobs", [1, 8, 32])
def test_a_single_server_that_restarts_is_given_each_request_once_more(
    make_engine: MakeEngine, servers: list[SmallServer], train: Train, jobs: int
) -> None:
    """Failures of its dead connections, which are read after it is back, do not take it out of use again."""
    engine = make_engine(servers[0], patience=dataclasses.replace(QUICK, alone=60.0))
    train()
    version, server = engine.publish(), servers[0]
    expected = ask(engine, version, jobs)
    server.fault, server.slow_seconds = "slow", 1.0
    lives = engine.pool.servers[0].lives

    def again() -> None:
        server.stop()
        time.sleep(0.5)
        server.requests.clear()
        server.start()

    threading.Timer(0.5, again).start()
    assert ask(engine, version, jobs) == expected
    assert engine.pool.servers[0].lives == lives + 1
    assert sampled(server) == jobs
    assert engine.pool.moved == jobs


def test_two_rollouts_of_two_versions_outlive_one_restart(
    make_engine: MakeEngine, servers: list[SmallServer], train: Train
) -> None:
    """A server that is back gets both versions: given one at a time, each would take the other's away."""
    servers[0].max_loras = 3
    engine = make_engine(servers[0], patience=dataclasses.replace(QUICK, alone=60.0))
    train()
    old = engine.publish()
    train()
    versions, server, found = [old, engine.publish()], servers[0], dict[str, list[Sampled]]()
    expected = {version.name: ask(engine, version, 8) for version in versions}
    server.fault, server.slow_seconds = "slow", 1.0
    lives = engine.pool.servers[0].lives

    def work(version: Version) -> None:
        found[version.name] = ask(engine, version, 8)

    threads = [threading.Thread(target=work, args=(version,)) for version in versions]
    for thread in threads:
        thread.start()
    time.sleep(0.4)
    server.stop()
    time.sleep(0.3)
    server.start()
    for thread in threads:
        thread.join(30)
    assert found == expected
    assert engine.pool.servers[0].lives == lives + 1


@pytest.mark.parametrize("kind", ["500", "garbage"])
def test_a_request_that_fails_everywhere_is_named(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer], kind: str
) -> None:
    """Each server works well otherwise, and passes every check when it is back."""
    engine = make_engine(patience=dataclasses.replace(QUICK, alone=60.0))
    poison = models.setup.tokenizer.encode(PROMPTS[2])

    def bad(body: dict[str, Any]) -> bytes | None:
        if body["prompt"] != poison:
            return None
        if kind == "500":
            raise RefusedError(500, "internal error")
        return b'{"choices": []}'

    for server in servers:
        answers(server, bad)
    said = "answered 500 internal error" if kind == "500" else "answered with 0 samples"
    with pytest.raises(EngineError, match=rf"A request failed 6 times, .*{said}.* Its prompt: '{PROMPTS[2]}"):
        rollout(models, engine)


def test_a_request_that_only_one_server_fails_at_is_done_by_the_other(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    engine = make_engine()
    expected, poison = rollout(models, engine), models.setup.tokenizer.encode(PROMPTS[0])
    answers(servers[0], lambda body: b"{}" if body["prompt"] == poison else None)
    answers(servers[1], lambda body: b"{}" if body["prompt"] == [] else None)
    assert rollout(models, engine) == expected


def test_servers_that_come_back_but_never_do_their_work_are_not_waited_for_for_ever(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    """As with an engine_timeout that is shorter than a healthy generation: each return looks like a success."""
    engine = make_engine(timeout=1.0, patience=dataclasses.replace(QUICK, alone=60.0))
    for server in servers:
        server.fault, server.slow_seconds = "slow", 2.0
    start = time.monotonic()
    with pytest.raises(EngineError, match=r"come back, but do not do their work: .* within 1 s.*raise engine_timeout"):
        rollout(models, engine)
    assert time.monotonic() - start < 30


def test_failures_of_requests_that_were_sent_together_are_one_fault(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer], caplog: pytest.LogCaptureFixture
) -> None:
    """Its three requests fail at once; after the back-off it works, so it stays in use."""
    engine = make_engine(patience=dataclasses.replace(QUICK, back_off=0.5))
    expected, until = rollout(models, engine), time.monotonic() + 0.3

    def bad(body: dict[str, Any]) -> bytes | None:
        if time.monotonic() < until:
            raise RefusedError(503, "overloaded")
        return None

    answers(servers[0], bad)
    assert rollout(models, engine) == expected
    assert engine.pool.servers[0].down is None
    assert not caplog.text
    assert engine.pool.moved == 3


def test_a_server_that_comes_back_with_other_log_probabilities_is_left_out(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    engine = make_engine()
    expected = rollout(models, engine)
    servers[1].stop()
    rollout(models, engine)
    servers[1].processed = True
    servers[1].start()
    assert rollout(models, engine) == expected
    assert engine.mode == "raw"
    assert engine.pool.servers[1].down == (
        "reports processed log-probabilities, and this run has raw ones. Start it with --logprobs-mode raw_logprobs"
    )


def test_the_only_server_that_comes_back_with_other_log_probabilities_is_refused(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    """What is sampled ahead was allowed because of what the servers reported, and a rollout has one kind."""
    engine = make_engine(servers[0])
    servers[0].stop()
    servers[0].processed = True
    threading.Timer(0.1, servers[0].start).start()
    with pytest.raises(EngineError, match=r"No server is left: .*Start it with --logprobs-mode raw_logprobs"):
        rollout(models, engine)


def test_a_rollout_that_is_given_up_ends_at_once_and_closes_its_connections(
    make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    engine, stop, ended = make_engine(), threading.Event(), list[str]()
    version = engine.publish()
    for server in servers:
        server.fault = "stuck"

    def work() -> None:
        try:
            ask(engine, version, 4, stop)
        except AbandonedError as error:
            ended.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.2)
    stop.set()
    thread.join(2 * QUICK.look + 1)
    assert ended == ["The rollout was given up."]
    until = time.monotonic() + 5
    while any(one.name == "vLLM request" for one in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_more_requests_than_a_server_may_have_wait_their_turn(make_engine: MakeEngine) -> None:
    engine = make_engine(patience=dataclasses.replace(Patience(), in_flight=2))
    assert len(ask(engine, engine.publish(), 16)) == 16
