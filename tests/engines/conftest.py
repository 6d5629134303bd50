"""Two small servers, and an engine that samples from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.engines.vllm_pool import Patience
from ppolm.runs.results import TrainingResults
from tests.engines.real_server import RealServer
from tests.engines.small_server import SmallServer

MakeConfig = Callable[..., PPOConfig]
SERVED: dict[str, Any] = {"engine": "vllm", "eval_every": 2, "max_steps": 4, "num_epochs": 8, "samples_per_prompt": 2}
QUICK = Patience(back_off=0.01, look=0.3, silences=1, stalled=60.0, alone=0.5)
Train = Callable[..., None]


def numbers(results: TrainingResults) -> list[dict[str, Any]]:
    """Metrics that must be the same in the same run."""
    skipped = ("seconds/", "engine_moved", "engine_servers")
    return [{key: value for key, value in row.items() if not key.startswith(skipped)} for row in results.metrics]


@pytest.fixture
def servers(make_config: Callable[..., PPOConfig], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SmallServer]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("ppolm.engines.vllm_client.SHORT", 3.0)
    started = [SmallServer(setup_models(make_config())) for _ in range(2)]
    yield started
    for server in started:
        server.stop()


@pytest.fixture
def served(make_config: MakeConfig, servers: list[SmallServer], monkeypatch: pytest.MonkeyPatch) -> MakeConfig:
    """Makes configurations of short runs on the two servers."""
    monkeypatch.setattr("ppolm.engines.vllm_engine.Patience", lambda: QUICK)
    for server in servers:
        server.max_loras = 3
    return lambda **changes: make_config(**(SERVED | {"engine_url": tuple(s.url for s in servers)} | changes))


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RealServer]]:
    """Two vLLM servers of the embedded model, for the tests of `make test-vllm`."""
    folder = tmp_path_factory.mktemp("vllm")
    started = [RealServer(folder).start(), RealServer(folder).start()]
    try:
        for server in started:
            server.wait()
        yield started
    finally:
        for server in started:
            server.kill()


@pytest.fixture
def make_engine(models: Models, servers: list[SmallServer], tmp_path: Path) -> Iterator[Callable[..., VllmEngine]]:
    made: list[VllmEngine] = []

    def make(*chosen: SmallServer, patience: Patience = QUICK, **options: Any) -> VllmEngine:
        urls = [server.url for server in chosen or servers]
        made.append(VllmEngine(models.policy, urls, str(tmp_path / "adapters"), patience=patience, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.release()


@pytest.fixture
def train(models: Models) -> Train:
    """Changes the policy a little, as a step would."""
    random = torch.Generator().manual_seed(0)

    def change(scale: float = 1e-2) -> None:
        with torch.no_grad():
            for value in models.policy.parameters().values():
                value.add_(scale * torch.randn(value.shape, generator=random))

    return change
