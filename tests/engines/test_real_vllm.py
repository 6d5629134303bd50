"""Against real vLLM servers: `make test-vllm`. Elsewhere these tests are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.data.load_rows import load_prompts
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.engines.vllm_pool import Patience
from ppolm.errors import EngineError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from tests.engines.conftest import Train
from tests.engines.real_server import CLOSE, PYTHON, RealServer, demo
from tests.ranks.launching import TRAIN, metrics, run, same

pytestmark = pytest.mark.skipif(not PYTHON, reason="needs vLLM, which `make test-vllm` installs and starts")
PROMPTS = ["My boss asked me to work", "Tell me about the sea", "I have a plan", "My neighbor is loud"]
MakeEngine = Callable[..., VllmEngine]


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return setup_models(demo(tmp_path))


@pytest.fixture
def make_engine(models: Models, real: list[RealServer], tmp_path: Path) -> Iterator[MakeEngine]:
    made: list[VllmEngine] = []

    def make(*chosen: RealServer) -> VllmEngine:
        urls = [server.url for server in chosen or real]
        made.append(VllmEngine(models.policy, urls, str(tmp_path / "adapters"), patience=Patience(alone=5.0)))
        return made[-1]

    yield make
    for engine in made:
        engine.release()


def off_by(
    models: Models, texts: Sequence[GeneratedText], logprobs: Sequence[torch.Tensor], temperature: float
) -> float:
    rows = [
        [torch.tensor(ids) for ids in one] for one in zip(*((t.prompt_ids, t.token_ids) for t in texts), strict=True)
    ]
    ours = models.policy.logprobs(TokenSequences(*rows), temperature, 4096)
    return float((torch.cat(list(logprobs)) - ours).abs().max())


@pytest.mark.parametrize("limits", [{}, {"top_k": 5}, {"top_p": 0.8}, {"greedy": True}], ids=str)
def test_log_probabilities_agree_with_ours_on_the_same_ids(
    models: Models, make_engine: MakeEngine, train: Train, limits: dict[str, Any]
) -> None:
    train(2e-2)
    sampling = Sampling(32, **limits)
    texts, logprobs = Generator(make_engine(), models.setup, sampling, 0, 4).generate(PROMPTS)
    assert off_by(models, texts, logprobs, sampling.temperature) < CLOSE
    assert {text.ended for text in texts} >= {True}
    assert all(text.token_ids.count(0) == text.ended for text in texts), "the end token is 0, and always the last"


def test_the_same_seed_gives_the_same_texts_and_both_servers_work(
    models: Models, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, counts = make_engine(), dict[str, int]()
    for server in engine.pool.servers:
        ask = server.client.sample

        def counted(name: str, job: Any, url: str = server.url, ask: Any = ask) -> Any:
            counts[url] = counts.get(url, 0) + 1
            return ask(name, job)

        monkeypatch.setattr(server.client, "sample", counted)
    one, other = (Generator(engine, models.setup, Sampling(32), 3, 2).generate(PROMPTS)[0] for _ in range(2))
    assert one == other
    assert list(counts.values()) == [4, 4]


def test_every_swap_is_proven_and_the_samples_follow_the_policy(
    models: Models, make_engine: MakeEngine, train: Train
) -> None:
    """Fails if the swap is skipped: the policy moves by far more than the tolerance each time."""
    engine = make_engine()
    before = torch.zeros(0)
    for _ in range(4):
        train(2e-2)
        texts, logprobs = Generator(engine, models.setup, Sampling(32), 0, 2).generate(PROMPTS)
        assert off_by(models, texts, logprobs, 1.0) < CLOSE
        after = engine._score(models.policy)
        assert not len(before) or (after - before).abs().max() > 100 * CLOSE
        before = after
        for server in engine.pool.servers:
            assert server.proof is not None
            assert server.proof.decided
            assert server.proof.follows == pytest.approx(1, abs=1e-3)
            assert len(server.client.served().adapters) == 2, "older versions are unloaded"


@pytest.mark.parametrize("scale", [1e-5, 1e-2])
def test_a_stale_adapter_is_noticed_however_small_the_step(
    make_engine: MakeEngine, real: list[RealServer], train: Train, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(real[0])
    train(2e-2)
    old = engine.publish()
    client = engine.pool.servers[0].client
    load = client.load
    monkeypatch.setattr(client, "load", lambda name, _, rank: load(name, old.folder, rank))
    train(scale)
    with pytest.raises(EngineError, match=rf"{real[0].url} was given policy-000003\S*, but it still answers with an"):
        engine.publish()


def test_mistakes_are_named_before_the_run(models: Models, real: list[RealServer], tmp_path: Path) -> None:
    large = setup_models(demo(tmp_path, lora_r=16))
    with pytest.raises(EngineError, match=r"has too small a --max-lora-rank for rank 16. Start it with 16"):
        VllmEngine(large.policy, [real[0].url], str(tmp_path / "a"))
    engine = VllmEngine(models.policy, [real[0].url], str(tmp_path / "b"))
    with pytest.raises(EngineError, match=r"have a context of 256.*--max-model-len"):
        Generator(engine, models.setup, Sampling(260), 0).generate(PROMPTS)
    engine.release()


def test_ten_steps_learn(real: list[RealServer], tmp_path: Path) -> None:
    config = demo(tmp_path, max_steps=10, engine="vllm", engine_url=tuple(server.url for server in real))
    results = PPOTrainer(config).train(load_prompts("embedded"), eval_prompts=load_prompts("embedded:validation"))
    first, last = results.evaluations[0], results.evaluations[-1]
    print("reward", first["avg_reward"], "->", last["avg_reward"], "+-", last["reward_gain_error"])
    assert last["avg_reward"] - first["avg_reward"] > 4 * last["reward_gain_error"]
    assert all(row["sampler_mismatch"] < CLOSE for row in results.metrics)
    assert all(row["engine_servers"] == 2 for row in results.metrics)
    assert all(abs(row["importance_mean"] - 1) < CLOSE for row in results.metrics)


def test_rollouts_ahead_learn_too(real: list[RealServer], tmp_path: Path) -> None:
    urls = tuple(server.url for server in real)
    config = demo(tmp_path, max_steps=10, engine="vllm", engine_url=urls, async_rollouts=True)
    results = PPOTrainer(config).train(load_prompts("embedded"), eval_prompts=load_prompts("embedded:validation"))
    first, last = results.evaluations[0], results.evaluations[-1]
    print("reward", first["avg_reward"], "->", last["avg_reward"], "+-", last["reward_gain_error"])
    assert [row["staleness"] for row in results.metrics] == [0] + [1] * 9
    assert last["avg_reward"] - first["avg_reward"] > 4 * last["reward_gain_error"]
    assert all(row["importance_ess"] > 0.9 for row in results.metrics)


def test_rollouts_ahead_are_the_same_in_two_processes(real: list[RealServer], tmp_path: Path) -> None:
    flags = [*TRAIN, "--max-steps", "4", "--engine", "vllm", "--engine-url", real[0].url, "--async-rollouts"]
    for processes in (1, 2):
        code, output = run(processes, "ppolm", "train", *flags, "--run-name", f"of-{processes}", cwd=tmp_path)
        assert code == 0, output
    alone, both = (metrics(tmp_path / "runs" / f"of-{processes}") for processes in (1, 2))
    assert [row["staleness"] for row in both if row["kind"] == "train"] == [0, 1, 1, 1]
    assert same(alone, both)


def test_a_server_in_bfloat16_that_reports_processed_log_probabilities(
    models: Models, make_engine: MakeEngine, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rounding is far above a small step of the policy; a stale adapter is told from it all the same."""
    other = RealServer(tmp_path, "--dtype", "bfloat16", "--logprobs-mode", "processed_logprobs").start()
    try:
        other.wait()
        engine = make_engine(other)
        assert engine.mode == "processed"
        train(2e-3)
        old = engine.publish()
        proof = engine.pool.servers[0].proof
        print(proof)
        assert proof is not None
        assert 1e-3 < proof.mismatch < 0.05
        assert proof.follows == pytest.approx(1, abs=0.1)
        texts, logprobs = Generator(engine, models.setup, Sampling(32, temperature=0.5), 0, 4).generate(PROMPTS)
        assert off_by(models, texts, logprobs, 0.5) < 0.5
        load = engine.pool.servers[0].client.load
        monkeypatch.setattr(engine.pool.servers[0].client, "load", lambda name, _, rank: load(name, old.folder, rank))
        train(2e-3)
        with pytest.raises(EngineError, match="still answers with an earlier adapter"):
            engine.publish()
    finally:
        other.kill()
