"""Sampling from servers: the same requests for the same seed, responses and log-probabilities as our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig
from ppolm.engines.vllm_engine import VllmEngine, logprobs_fit
from ppolm.engines.vllm_messages import GarbageError, Job, jobs_of, read_samples
from ppolm.errors import EngineError
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from tests.conftest import PROMPTS
from tests.engines.conftest import Train
from tests.engines.small_server import SmallServer
from tests.table_cases import bias_logits
from tests.tiny_models import EOS, make_model_folder

MakeEngine = Callable[..., VllmEngine]


def rollout(
    models: Models, engine: VllmEngine, samples: int = 3, **sampling: Any
) -> tuple[list[GeneratedText], torch.Tensor]:
    generator = Generator(engine, models.setup, Sampling(**({"max_new_tokens": 8} | sampling)), 0, samples)
    texts, logprobs = generator.generate(PROMPTS)
    return texts, torch.cat(logprobs)


def own_logprobs(models: Models, texts: list[GeneratedText], temperature: float = 1.0) -> torch.Tensor:
    contexts = [torch.tensor(text.prompt_ids) for text in texts]
    actions = [torch.tensor(text.token_ids) for text in texts]
    return models.policy.logprobs(TokenSequences(contexts, actions), temperature, 4096)


def test_responses_have_the_log_probabilities_of_the_trained_policy(
    models: Models, make_engine: MakeEngine, train: Train
) -> None:
    train()
    texts, logprobs = rollout(models, make_engine())
    assert [text.prompt.content for text in texts[::3]] == PROMPTS
    assert len({tuple(text.token_ids) for text in texts}) == len(texts), "the samples of a prompt differ"
    torch.testing.assert_close(logprobs, own_logprobs(models, texts), atol=1e-4, rtol=0)
    reference = models.sft.logprobs(
        TokenSequences([torch.tensor(t.prompt_ids) for t in texts], [torch.tensor(t.token_ids) for t in texts]),
        1.0,
        4096,
    )
    assert (logprobs - reference).abs().max() > 1e-2, "the adapter makes a difference that the comparison would see"


def test_the_samples_of_a_prompt_are_one_request_and_the_servers_share_them(
    models: Models, servers: list[SmallServer], make_engine: MakeEngine
) -> None:
    engine = make_engine()
    for server in servers:
        server.requests.clear()
    rollout(models, engine)
    sent = [request for server in servers for request in server.requests]
    assert [len(server.requests) for server in servers] == [3, 3]
    assert {request["n"] for request in sent} == {3}
    assert len({request["seed"] for request in sent}) == len(PROMPTS)
    assert all(request["ignore_eos"] and request["stop_token_ids"] == [EOS] for request in sent)


def test_the_same_seed_makes_the_same_requests_and_the_same_texts(
    models: Models, servers: list[SmallServer], make_engine: MakeEngine
) -> None:
    engine = make_engine()

    def requests() -> list[tuple[int, ...]]:
        found = [(request["seed"], *request["prompt"]) for server in servers for request in server.requests]
        for server in servers:
            server.requests.clear()
        return sorted(found)

    requests()
    first, sent = rollout(models, engine)[0], requests()
    second, again = rollout(models, engine)[0], requests()
    assert first == second
    assert sent == again


def test_a_response_ends_at_our_end_token_and_contains_it(
    models: Models, servers: list[SmallServer], make_engine: MakeEngine
) -> None:
    for one in (models, *(server.models for server in servers)):
        bias_logits(one, {EOS: 4.0})
    texts, _ = rollout(models, make_engine(), samples=8)
    assert {text.ended for text in texts} == {True, False}
    for text in texts:
        assert text.token_ids.count(EOS) == text.ended
        assert text.ended == (text.token_ids[-1] == EOS)
        assert text.ended or len(text.token_ids) == 8


def test_greedy_responses_are_asked_for_once_and_are_all_the_same(
    models: Models, servers: list[SmallServer], make_engine: MakeEngine
) -> None:
    engine = make_engine()
    texts, _ = rollout(models, engine, samples=2, greedy=True)
    assert servers[0].requests[-1]["n"] == 1
    assert texts[::2] == texts[1::2]
    ours, _ = Generator(models.policy, models.setup, Sampling(8, greedy=True)).generate(PROMPTS)
    assert texts[::2] == ours


@pytest.mark.parametrize(("temperature", "processed"), [(0.5, False), (0.5, True), (1.0, False)])
def test_log_probabilities_are_at_our_temperature_or_said_to_be_unknown(
    models: Models, servers: list[SmallServer], make_engine: MakeEngine, temperature: float, processed: bool
) -> None:
    for server in servers:
        server.processed = processed
    engine = make_engine()
    assert engine.mode == ("processed" if processed else "raw")
    texts, logprobs = rollout(models, engine, temperature=temperature)
    if temperature != 1 and not processed:
        assert bool(logprobs.isnan().all())
    else:
        torch.testing.assert_close(logprobs, own_logprobs(models, texts, temperature), atol=1e-4, rtol=0)


def test_which_log_probabilities_fit() -> None:
    plain, warm = Sampling(4), Sampling(4, temperature=0.7)
    limited, both = Sampling(4, top_k=5, top_p=0.9), Sampling(4, temperature=0.7, top_k=5)
    assert [logprobs_fit("raw", one) for one in (plain, warm, limited, both)] == [True, False, True, False]
    assert [logprobs_fit("processed", one) for one in (plain, warm, limited, both)] == [True, True, False, False]
    assert not logprobs_fit("processed", Sampling(4, temperature=0.7, greedy=True)), "greedy ones have no temperature"


def test_servers_that_report_different_log_probabilities_are_refused(
    servers: list[SmallServer], make_engine: MakeEngine
) -> None:
    servers[1].processed = True
    with pytest.raises(EngineError, match=r"report different log-probabilities.*same --logprobs-mode"):
        make_engine()


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({}, "'choices' is None"),
        ({"choices": []}, "0 samples"),
        ({"choices": [{"index": 0, "token_ids": [5, 6], "logprobs": {"token_logprobs": [-1.0]}}]}, "2 tokens with 1"),
        ({"choices": [{"index": 0, "token_ids": [5, 99], "logprobs": {"token_logprobs": [-1, -1]}}]}, "the token 99"),
        ({"choices": [{"index": 0, "token_ids": [5, 6], "logprobs": {"token_logprobs": [-1, None]}}]}, "None"),
        ({"choices": [{"index": 0, "token_ids": [5, 6], "logprobs": {"token_logprobs": [-1, 3.5]}}]}, "3.5"),
        ({"choices": [{"index": 0, "token_ids": [1, 6], "logprobs": {"token_logprobs": [-1, -1]}}]}, "after the end"),
        ({"choices": [{"index": 0, "token_ids": [6], "logprobs": {"token_logprobs": [-1]}}]}, "stops after 1"),
        (
            {
                "choices": [
                    {
                        "index": 0,
                        "token_ids": [6, 1],
                        "logprobs": {"token_logprobs": [-1, -1]},
                        "prompt_token_ids": [3],
                    }
                ]
            },
            "another prompt",
        ),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_garbage(answer: Any, found: str) -> None:
    job = Job(0, [3, 4], 1, Sampling(2), 0, (EOS,))
    with pytest.raises(GarbageError, match=found):
        read_samples(job, answer, 50)


def test_equal_prompts_in_a_row_are_one_job() -> None:
    uniforms = torch.rand(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    jobs = jobs_of([[3, 4], [3, 4], [5], [3, 4]], Sampling(2), uniforms, [EOS])
    assert [(job.number, list(job.prompt), job.copies) for job in jobs] == [(0, [3, 4], 2), (1, [5], 1), (2, [3, 4], 1)]
    assert len({job.seed for job in jobs}) == 3


# ---- before the run -------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_named(make_engine: MakeEngine, servers: list[SmallServer]) -> None:
    for server in servers:
        server.stop()
    with pytest.raises(EngineError, match=rf"No sampling server can be used: {servers[0].url} could not be reached"):
        make_engine()


def test_a_run_begins_with_the_servers_that_are_there(
    make_engine: MakeEngine, servers: list[SmallServer], caplog: pytest.LogCaptureFixture
) -> None:
    servers[0].stop()
    assert [server.url for server in make_engine().pool.up] == [servers[1].url]
    assert f"Server {servers[0].url} could not be reached" in caplog.text
    assert "The run begins without it." in caplog.text


def test_a_server_with_another_model_is_refused(
    make_config: Callable[..., PPOConfig], make_engine: MakeEngine, servers: list[SmallServer], tmp_path: Path
) -> None:
    servers[0].models = setup_models(make_config(model_name=str(make_model_folder(tmp_path / "other", seed=1))))
    with pytest.raises(EngineError, match=rf"{servers[0].url} serves another model than .*away from ours"):
        make_engine()


def test_a_server_whose_rank_is_too_small_is_told_which_to_take(
    make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    servers[1].max_rank = 1
    with pytest.raises(EngineError, match=rf"{servers[1].url} has too small a --max-lora-rank for rank 4.*with 8"):
        make_engine()


def test_a_server_that_holds_one_adapter_is_refused(make_engine: MakeEngine, servers: list[SmallServer]) -> None:
    servers[0].max_loras = 1
    with pytest.raises(EngineError, match=r"holds 1 adapter at a time, 2 are needed.*--max-loras 2"):
        make_engine()


def test_a_context_that_would_cut_responses_is_refused(
    models: Models, make_engine: MakeEngine, servers: list[SmallServer]
) -> None:
    servers[1].context = 70
    engine = make_engine()
    with pytest.raises(
        EngineError, match=r"may take 88 tokens, and the servers have a context of 70.*--max-model-len 88"
    ):
        rollout(models, engine, max_new_tokens=60)
    servers[1].context = 20
    with pytest.raises(EngineError, match="has a context of 20 tokens, too short"):
        make_engine()


def test_a_folder_that_a_server_does_not_see_is_said(
    models: Models, make_engine: MakeEngine, train: Train, servers: list[SmallServer]
) -> None:
    engine = make_engine()
    engine.versions.folder.chmod(0o755)
    engine.pool.servers[0].loaded.clear()
    assert engine._version is not None
    for file in engine._version.folder.iterdir():
        file.unlink()
    servers[0].adapters.clear()
    engine.pool.servers[0].was_up = False
    with pytest.raises(EngineError, match=r"finds no adapter in .*Set engine_folder"):
        engine.publish()


def test_a_key_is_read_from_the_environment_and_never_shown(
    make_engine: MakeEngine, servers: list[SmallServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    for server in servers:
        server.key = "Bearer open-sesame"
    with pytest.raises(EngineError, match=r"refuses us \(401\)\. Put its key into PPOLM_ENGINE_AUTHORIZATION"):
        make_engine()
    monkeypatch.setenv("PPOLM_ENGINE_AUTHORIZATION", "Bearer wrong-word")
    with pytest.raises(EngineError) as caught:
        make_engine()
    assert "wrong-word" not in str(caught.value)
    monkeypatch.setenv("PPOLM_ENGINE_AUTHORIZATION", "Bearer open-sesame")
    assert len(make_engine().pool.up) == 2


def test_the_engine_leaves_nothing_behind(models: Models, make_engine: MakeEngine, servers: list[SmallServer]) -> None:
    engine = make_engine()
    assert servers[0].adapters
    folder = engine.versions.folder
    engine.release()
    assert not servers[0].adapters
    assert not folder.exists()


def test_models_differ_between_servers_and_trainer_only_in_their_adapter(make_config: Callable[..., PPOConfig]) -> None:
    """What the other tests rely on: a second load gives the same base."""
    one, other = (setup_models(make_config()).setup.causal_lm.state_dict() for _ in range(2))
    same = [key for key, value in one.items() if torch.equal(value, other[key])]
    assert len(same) == len(one)
