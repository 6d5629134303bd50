"""Whole trainings whose responses come from servers: they learn, survive faults, and resume where they were."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.cli.main import run as ppolm
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.errors import ConfigError, EngineError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.storage.code_consent import code_of
from tests.conftest import PROMPTS, spread
from tests.engines.conftest import SERVED, MakeConfig, numbers
from tests.engines.small_server import SmallServer


def test_a_run_samples_from_the_servers_and_says_how_far_they_are(
    served: MakeConfig, servers: list[SmallServer]
) -> None:
    trainer = PPOTrainer(served(), reward=spread)
    results = trainer.train(PROMPTS)
    assert isinstance(trainer.generator.engine, VllmEngine)
    for row in results.metrics:
        assert row["engine_servers"] == 2
        assert row["engine_moved"] == 0
        assert row["sampler_mismatch"] < 1e-4
        assert row["importance_ess"] == pytest.approx(1, abs=1e-4)
        assert row["engine_mismatch"] < 1e-4
        assert "staleness" not in row
    assert [name[:13] for name in servers[0].loads] == [f"policy-{number:06d}" for number in range(1, 6)]
    assert len(results.evaluations) == 3


def test_the_same_seed_gives_the_same_run(served: MakeConfig) -> None:
    one = PPOTrainer(served(), reward=spread).train(PROMPTS)
    other = PPOTrainer(served(run_name="again"), reward=spread).train(PROMPTS)
    assert numbers(one) == numbers(other)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_run_that_lost_its_servers_keeps_its_steps_and_resumes_as_if_nothing_had_happened(
    served: MakeConfig, servers: list[SmallServer], ahead: bool
) -> None:
    config, calls, trainers = served(async_rollouts=ahead, eval_every=0), list[int](), list[PPOTrainer]()
    whole = PPOTrainer(dataclasses.replace(config, run_name="whole"), reward=spread).train(PROMPTS)

    def dying(prompts: list[str], responses: list[Any]) -> list[float]:
        calls.append(len(prompts))
        if len(calls) == 2:
            trainers[0].generator.state_dict()  # waits for the rollout ahead, if there is one
            for server in servers:
                server.stop()
        return spread(prompts, responses)

    trainers.append(PPOTrainer(config, reward={"spread": dying}))
    with pytest.raises(EngineError, match="No server is left"):
        trainers[0].train(PROMPTS)
    for server in servers:
        server.start()
    resumed = PPOTrainer(config, reward={"spread": spread}).train(PROMPTS, resume=f"{config.output_dir}/run")
    assert resumed.steps == 4
    assert len(resumed.metrics) == 2, "finished steps are not repeated"
    assert numbers(resumed) == numbers(whole)[2:]


def test_a_rollout_ahead_that_was_lost_is_sampled_afresh_with_its_random_numbers(
    served: MakeConfig, servers: list[SmallServer]
) -> None:
    trainer = PPOTrainer(served(async_rollouts=True), reward=spread)
    trainer.generator.expect(PROMPTS[2:4])  # type: ignore[attr-defined]
    for server in servers:
        server.fault = "stuck"
    before = trainer.generator.random.get_state()
    trainer.generator._rollout = trainer.generator._begin([[5, 6], [7, 8]])  # type: ignore[attr-defined]
    for server in servers:
        server.stop()
    state = trainer.generator.state_dict()
    assert state["ahead"] is None
    assert torch.equal(state["random"], before)
    with pytest.raises(EngineError, match="No server is left"):
        trainer.generator._rollout.result()  # type: ignore[attr-defined]


def test_rollouts_ahead_are_a_step_old_weighted_and_the_requests_are_the_same(
    served: MakeConfig, servers: list[SmallServer]
) -> None:
    def requests() -> list[tuple[int, ...]]:
        found = [(body["seed"], *body["prompt"]) for server in servers for body in server.requests if body["n"] == 2]
        for server in servers:
            server.requests.clear()
        return sorted(found)

    config = served(eval_every=0, learning_rate=1e-2)
    PPOTrainer(config, reward=spread).train(PROMPTS)
    now = requests()
    results = PPOTrainer(dataclasses.replace(config, run_name="ahead", async_rollouts=True), reward=spread)
    metrics = results.train(PROMPTS).metrics
    assert requests() == now, "the same prompts with the same seeds"
    assert [row["staleness"] for row in metrics] == [0, 1, 1, 1]
    assert metrics[0]["sampler_mismatch"] < 1e-4
    assert all(row["sampler_mismatch"] > 1e-3 for row in metrics[1:]), "the weights that sampled were older"
    assert all(row["importance_ess"] < 0.9999 for row in metrics[1:])


def test_a_checkpoint_contains_the_rollout_ahead(served: MakeConfig) -> None:
    trainer = PPOTrainer(served(async_rollouts=True), reward=spread)
    trainer.generator.expect(PROMPTS[2:4])  # type: ignore[attr-defined]
    trainer.ppo_step(PROMPTS[:2])
    state = trainer.generator.state_dict()
    assert len(state["ahead"]["responses"]) == 4
    texts, logprobs = trainer.generator.generate(PROMPTS[2:4])
    other = PPOTrainer(served(async_rollouts=True), reward=spread)
    other.generator.load_state_dict(state)
    again, same = other.generator.generate(PROMPTS[2:4])
    assert again == texts
    assert torch.equal(torch.cat(same), torch.cat(logprobs))
    other.generator.load_state_dict(state)
    fresh, _ = other.generator.generate(PROMPTS[:2])
    assert [text.prompt.content for text in fresh[::2]] == PROMPTS[:2], "other prompts than expected are sampled now"


def test_rollouts_ahead_whose_log_probabilities_could_not_be_known_are_refused(
    served: MakeConfig, servers: list[SmallServer]
) -> None:
    with pytest.raises(
        EngineError, match=r"async_rollouts needs .* report raw ones.* temperature 0\.5.*temperature: 1"
    ):
        PPOTrainer(served(async_rollouts=True, temperature=0.5), reward=spread)
    for server in servers:
        server.max_loras = 2
    with pytest.raises(EngineError, match="3 are needed"):
        PPOTrainer(served(async_rollouts=True), reward=spread)


def test_the_caps_reach_the_table(served: MakeConfig, servers: list[SmallServer]) -> None:
    config = served(async_rollouts=True, eval_every=0, learning_rate=3e-2, importance_cap=1.0)

    def last_table(**changes: Any) -> Any:
        trainer = PPOTrainer(dataclasses.replace(config, **changes), reward=spread)
        trainer.generator.expect(PROMPTS[2:4])  # type: ignore[attr-defined]
        trainer.ppo_step(PROMPTS[:2])
        return trainer.ppo_step(PROMPTS[2:4])["sa_pairs"]

    capped, free = last_table(), last_table(importance_cap=100.0)
    assert float(capped.column("importance_weight").max()) == 1.0
    assert float(free.column("importance_weight").max()) > 1.0
    masked = last_table(importance_sequence_cap=1.0001)
    assert int((masked.column("importance_weight") == 0).sum()) > 0


def test_servers_that_are_not_the_policy_are_an_alarm(
    served: MakeConfig, servers: list[SmallServer], caplog: pytest.LogCaptureFixture
) -> None:
    """Even if every proof were wrong, the log-probabilities of the responses themselves show it."""
    trainer = PPOTrainer(served(eval_every=0, max_steps=1, importance_cap=50.0), reward=spread)
    sampled = trainer.generator.engine.generate

    def other(*arguments: Any) -> Any:
        return [dataclasses.replace(one, logprobs=[4 * x for x in one.logprobs]) for one in sampled(*arguments)]

    trainer.generator.engine.generate = other  # type: ignore
    trainer.train(PROMPTS)
    assert "the servers sample from something else than the policy" in caplog.text


def test_the_time_limit_and_the_folder_reach_the_engine(served: MakeConfig, tmp_path: Any) -> None:
    config = served(engine_timeout=7.0, engine_folder=str(tmp_path / "shared"))
    engine = PPOTrainer(config, reward=spread).generator.engine
    assert isinstance(engine, VllmEngine)
    assert engine.pool.servers[0].client.timeout == 7.0
    assert engine.versions.folder.parent == tmp_path / "shared"
    assert PPOTrainer(served(), reward=spread).generator.engine.versions.folder.parent.name == "engine"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine_url": ()}, "there is no server. Set engine_url"),
        ({"engine_url": ("localhost:8000",)}, "expected an address such as http"),
        ({"engine_url": ("http://a:1", "http://a:1/")}, "the same server twice"),
        ({"engine_url": ("http://u:hunter2@a:1",)}, "has a password"),
        ({"recompute_logprobs": "never"}, "recompute_logprobs 'never'"),
        ({"engine": "local"}, "engine_url is for responses of servers"),
        ({"engine": "local", "engine_url": (), "async_rollouts": True}, "async_rollouts is for responses of servers"),
    ],
)
def test_settings_that_cannot_work_are_refused(make_config: MakeConfig, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(**(SERVED | {"engine_url": ("http://a:1",)} | changes))


def test_somebody_elses_run_does_not_send_prompts_to_its_servers_unasked(make_config: MakeConfig) -> None:
    config = make_config(**(SERVED | {"engine_url": ("http://a:1", "http://b:2")}))
    assert [code.name for code in code_of(config, rewards=False)] == ["http://a:1", "http://b:2"]


@pytest.mark.parametrize("command", ["generate", "eval"])
def test_other_commands_sample_from_servers_too(
    make_config: MakeConfig,
    servers: list[SmallServer],
    tmp_path: Path,
    command: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine.py").write_text("def score(prompts, responses):\n    return [1.0 for _ in responses]\n")
    config = make_config(max_steps=1, num_epochs=1, reward=(f"{tmp_path / 'mine.py'}:score",))
    results = PPOTrainer(config).train(PROMPTS)
    run, flags = str(results.run_dir), ["--engine", "vllm", "--engine-url", *(server.url for server in servers)]
    asked = ["generate", "--run", run, "--prompt", "Tell me"] if command == "generate" else ["eval", run]
    before = sum(len(server.requests) for server in servers)
    assert ppolm([*asked, *flags]) == 0, capsys.readouterr().err
    assert sum(len(server.requests) for server in servers) > before
