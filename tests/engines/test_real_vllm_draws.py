"""What real vLLM servers draw: `make test-vllm`. Elsewhere these tests are skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.cli.main import run as ppolm
from ppolm.data.load_rows import load_prompts
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.engines.vllm_pool import Patience
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.run_comparison import RunComparison
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from tests.engines.conftest import Train
from tests.engines.real_server import CLOSE, PYTHON, RealServer, demo

pytestmark = pytest.mark.skipif(not PYTHON, reason="needs vLLM, which `make test-vllm` installs and starts")
PROMPTS = ["My boss asked me to work", "Tell me about the sea", "I have a plan", "My neighbor is loud"]


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return setup_models(demo(tmp_path))


@pytest.fixture
def engine(models: Models, real: list[RealServer], tmp_path: Path, train: Train) -> Iterator[VllmEngine]:
    train(2e-2)
    urls = [server.url for server in real]
    made = VllmEngine(models.policy, urls, str(tmp_path / "adapters"), patience=Patience(alone=5.0))
    yield made
    made.release()


def sequences(texts: Sequence[GeneratedText]) -> TokenSequences:
    return TokenSequences(
        [torch.tensor(text.prompt_ids) for text in texts], [torch.tensor(text.token_ids) for text in texts]
    )


@torch.no_grad()
def logits(models: Models, text: GeneratedText) -> torch.Tensor:
    """Our own, at every token of a response: [A, V]."""
    models.adapters.activate("policy")
    found = models.setup.causal_lm(torch.tensor([[*text.prompt_ids, *text.token_ids]])).logits[0]
    return found[len(text.prompt_ids) - 1 : -1].float()


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_drawn_tokens_are_among_the_k_most_likely(models: Models, engine: VllmEngine, top_k: int) -> None:
    sampling = Sampling(24, temperature=2.0, top_k=top_k)
    texts, _ = Generator(engine, models.setup, sampling, 0, 4).generate(PROMPTS)
    ranks = set[int]()
    for text in texts:
        scores = logits(models, text)
        drawn = scores.gather(-1, torch.tensor(text.token_ids)[:, None])
        ranks |= set((scores > drawn + CLOSE).sum(-1).tolist())
    assert ranks == set(range(top_k)), "all of the candidates are drawn, and nothing else"


@pytest.mark.parametrize("top_p", [0.2, 0.6])
def test_drawn_tokens_are_within_top_p(models: Models, engine: VllmEngine, top_p: float) -> None:
    texts, _ = Generator(engine, models.setup, Sampling(24, top_p=top_p), 0, 8).generate(PROMPTS)
    above = []
    for text in texts:
        shares = logits(models, text).softmax(-1)
        drawn = shares.gather(-1, torch.tensor(text.token_ids)[:, None])
        above.append(torch.where(shares > drawn + CLOSE, shares, 0.0).sum(-1))
    mass = torch.cat(above)
    assert float(mass.max()) < top_p + 1e-3, "what is more likely than a drawn token does not fill the share yet"
    assert float(mass.max()) > top_p / 2, "the limit was reached"


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.5])
def test_tokens_are_drawn_at_the_temperature(models: Models, engine: VllmEngine, temperature: float) -> None:
    """log π of a drawn token is on average the negative entropy, at the temperature of the draws and at no other."""
    sampling = Sampling(16, temperature=temperature)
    texts, logprobs = Generator(engine, models.setup, sampling, 0, 64).generate(PROMPTS)
    assert bool(torch.cat(logprobs).isnan().all()) == (temperature != 1), "raw ones are at temperature 1"

    def off(assumed: float) -> float:
        """In standard errors."""
        drawn = models.policy.logprobs(sequences(texts), assumed, 4096).double()
        surplus = drawn + models.policy.entropies(sequences(texts), assumed, 4096).double()
        return float(surplus.mean().abs() / surplus.std() * len(surplus) ** 0.5)

    assert off(temperature) < 4
    assert off(1.3 * temperature) > 8


def test_greedy_samples_are_those_of_the_local_policy(models: Models, engine: VllmEngine) -> None:
    texts, _ = Generator(engine, models.setup, Sampling(24, greedy=True), 0, 3).generate(PROMPTS)
    ours, _ = Generator(models.policy, models.setup, Sampling(24, greedy=True)).generate(PROMPTS)
    assert [text.token_ids for text in texts[::3]] == [text.token_ids for text in ours]
    assert texts[::3] == texts[1::3] == texts[2::3]


def test_rank_and_alpha_patterns_are_applied_as_peft_does(real: list[RealServer], tmp_path: Path) -> None:
    config = demo(tmp_path)
    adapters = AdapterSet(BaseModelSetup(config))
    lora = new_lora_config(config, adapters.setup.causal_lm)
    lora.rank_pattern, lora.alpha_pattern = {"q_proj": 3, "v_proj": 8}, {"q_proj": 40, "o_proj": 2}
    adapters.create("policy", lora)
    random = torch.Generator().manual_seed(0)
    for value in adapters.parameters("policy").values():
        value.copy_(0.1 * torch.randn(value.shape, generator=random))
    adapters.save("policy", tmp_path / "patterns")
    policy = setup_models(demo(tmp_path, sft_adapter=str(tmp_path / "patterns"))).policy
    engine = VllmEngine(policy, [real[0].url], str(tmp_path / "adapters"), patience=Patience(alone=5.0))
    texts, logprobs = Generator(engine, policy.setup, Sampling(24), 0, 4).generate(PROMPTS)
    proof = engine.pool.servers[0].proof
    engine.release()
    assert proof is not None
    assert proof.follows == pytest.approx(1, abs=1e-3)
    assert float((torch.cat(logprobs) - policy.logprobs(sequences(texts), 1.0, 4096)).abs().max()) < CLOSE


def test_generate_and_eval_sample_what_the_local_policy_would(
    real: list[RealServer], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quick: dict[str, Any] = {"eval_every": 0, "eval_prompts": None, "judge": None, "max_eval_prompts": 64}
    config = demo(tmp_path / "runs", max_steps=2, learning_rate=1e-3, **quick)
    run = PPOTrainer(config).train(load_prompts("embedded")).run_dir
    served = ["--engine", "vllm", "--engine-url", *(server.url for server in real)]
    said = []
    for engine in ([], served):
        capsys.readouterr()
        asked = ["generate", "--run", str(run), "--prompt", *PROMPTS, "--temperature", "0", "--json", *engine]
        assert ppolm(asked) == 0
        said.append([json.loads(line)["response"] for line in capsys.readouterr().out.splitlines()])
    assert said[0] == said[1]
    assert len(set(said[0])) > 1
    assert ppolm(["generate", "--model-name", "embedded", "--prompt", PROMPTS[0], *served]) == 0
    machines: list[dict[str, Any]] = [{}, {"engine": "vllm", "engine_url": [server.url for server in real]}]
    prompts, answers = load_prompts("embedded:validation")[:8], []
    for machine in machines:
        runner = RunComparison(run, "last", machine=machine)
        (comparison,) = runner.compare(prompts, greedy=[True])
        runner.release()
        answers.append([[row["response"] for row in part.samples] for part in (comparison.before, comparison.after)])
    assert answers[0] == answers[1]
    (tmp_path / "p.txt").write_text("\n".join(PROMPTS))
    assert ppolm(["eval", str(run), "--policy", "last", "--prompts", str(tmp_path / "p.txt"), *served]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.txt", "runs"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["run"]
    for server in real:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("no_proxy", "127.0.0.1")
            assert not loaded(server)


def loaded(server: RealServer) -> list[str]:
    import urllib.request

    with urllib.request.urlopen(f"{server.url}/v1/models", timeout=5) as answer:
        return [row["id"] for row in json.loads(answer.read())["data"] if row["parent"] is not None]
