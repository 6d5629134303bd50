"""Commands that sample from servers, and runs that change what samples for them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.errors import ConfigError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.run_comparison import RunComparison
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from ppolm.token_attribution.sa_pairs import SAPairs
from tests.conftest import PROMPTS, spread
from tests.engines.conftest import MakeConfig
from tests.engines.small_server import SmallServer

Run = Callable[..., Path]


@pytest.fixture
def trained(make_config: MakeConfig, tmp_path: Path) -> Run:
    """A short run, by default with the local policy, that has learned enough to answer differently."""
    (tmp_path / "p.txt").write_text("\n".join(PROMPTS))
    fixed = {"prompts": str(tmp_path / "p.txt"), "reward": ("tests.conftest:spread",), "num_epochs": 8}

    def train(make: MakeConfig = make_config, **changes: Any) -> Path:
        config = make(**(fixed | {"max_steps": 1, "eval_every": 0, "checkpoint_every": 1} | changes))
        return PPOTrainer(config).train(PROMPTS).run_dir

    return train


def urls(servers: list[SmallServer]) -> list[str]:
    return ["--engine", "vllm", "--engine-url", *(server.url for server in servers)]


def test_generate_and_eval_sample_from_the_adapter_of_the_run(
    trained: Run, servers: list[SmallServer], capsys: pytest.CaptureFixture[str]
) -> None:
    run, said = trained(learning_rate=0.05), []
    for flags in ([], urls(servers)):
        capsys.readouterr()
        asked = ["generate", "--run", str(run), "--prompt", *PROMPTS, "--temperature", "0", "--json", *flags]
        assert ppolm(asked) == 0
        said.append([json.loads(line)["response"] for line in capsys.readouterr().out.splitlines()])
    assert said[0] == said[1]
    answers = []
    for machine in ({}, {"engine": "vllm", "engine_url": [server.url for server in servers]}):
        runner = RunComparison(run, machine=machine)
        (comparison,) = runner.compare(runner_prompts(), greedy=[True])
        runner.release()
        answers.append([[row["response"] for row in part.samples] for part in (comparison.before, comparison.after)])
    assert answers[0] == answers[1]
    assert answers[1][0] != answers[1][1], "the run has changed its policy"
    assert not any(server.adapters for server in servers)


def runner_prompts() -> list[Any]:
    from ppolm.data.prompts import as_prompts

    return as_prompts(PROMPTS)


def test_a_command_has_the_flags_of_the_servers_and_makes_no_folder_for_runs(
    trained: Run,
    servers: list[SmallServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, made = trained(), list[VllmEngine]()
    begin = VllmEngine.publish

    def publish(self: VllmEngine) -> Any:
        made.append(self)
        return begin(self)

    monkeypatch.setattr(VllmEngine, "publish", publish)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    bare = ["--adapter", str(run / "best")]
    model = json.loads((run / "best" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert ppolm(["generate", "--model-name", model, "--prompt", "Tell", *bare, *urls(servers)]) == 0, (
        capsys.readouterr().err
    )
    assert made[-1].versions.written.parent == Path(tempfile.gettempdir())
    assert list(Path.cwd().iterdir()) == []
    more = ["--engine-folder", str(tmp_path / "shared"), "--engine-timeout", "7"]
    assert ppolm(["generate", "--run", str(run), "--prompt", "Tell", *urls(servers), *more]) == 0
    assert made[-1].versions.written.parent == tmp_path / "shared"
    assert made[-1].pool.servers[0].client.timeout == 7
    assert not (tmp_path / "shared").exists(), "made for this command, and gone with it"


@pytest.mark.parametrize("ahead", [False, True])
def test_a_served_run_is_used_and_resumed_with_another_engine(
    served: MakeConfig,
    trained: Run,
    servers: list[SmallServer],
    ahead: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = trained(served, async_rollouts=ahead, importance_cap=3.0, engine_timeout=9.0)
    for server in servers:
        server.stop()
    local = ["--engine", "local"]
    for asked in (
        ["generate", "--run", str(run), "--prompt", "Tell", *local],
        ["eval", str(run), "--prompts", str(tmp_path / "p.txt"), *local],
        ["train", "--resume", str(run), "--max-steps", "2", *local],
    ):
        assert ppolm(asked) == 0, capsys.readouterr().err
    for server in servers:
        server.start()
    assert ppolm(["train", "--resume", str(run), "--max-steps", "3", *urls(servers)]) == 0, capsys.readouterr().err
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert ["importance_mean" in row for row in rows] == [True, False, True]


def test_rollouts_ahead_may_begin_and_end_when_a_run_is_resumed(
    served: MakeConfig,
    make_config: MakeConfig,
) -> None:
    """Responses in the checkpoint that were sampled ahead are sampled afresh, with their own random numbers."""
    common: dict[str, Any] = {"eval_every": 0, "checkpoint_every": 1, "learning_rate": 1e-3}
    whole = PPOTrainer(served(**common, run_name="whole"), reward=spread)
    PPOTrainer(served(**common, max_steps=2, async_rollouts=True), reward=spread).train(PROMPTS)
    whole.train(PROMPTS)
    trainer = PPOTrainer(served(**common), reward=spread)
    metrics = trainer.train(PROMPTS, resume=f"{trainer.config.output_dir}/run").metrics
    assert ["staleness" in row for row in metrics] == [False, False]
    assert torch.equal(trainer.generator.random.get_state(), whole.generator.random.get_state())
    ahead = PPOTrainer(served(**common, max_steps=6, async_rollouts=True), reward=spread)
    metrics = ahead.train(PROMPTS, resume=f"{trainer.config.output_dir}/run").metrics
    assert [row["staleness"] for row in metrics] == [0, 1]


@pytest.mark.parametrize("command", ["generate", "train"])
def test_a_flag_for_servers_is_refused_where_there_are_none(
    trained: Run, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(trained())
    asked = ["generate", "--run", run, "--prompt", "Tell"] if command == "generate" else ["train", "--resume", run]
    assert ppolm([*asked, "--engine-url", "http://127.0.0.1:9"]) != 0
    assert "engine_url is for responses of servers" in capsys.readouterr().err


def test_what_was_stored_gives_way_and_what_is_asked_for_does_not() -> None:
    stored = PPOConfig(engine="vllm", engine_url=("http://a:1",), importance_cap=3.0)
    assert stored.overridden(engine="local") == PPOConfig()
    with pytest.raises(ConfigError, match="engine_timeout is for responses of servers"):
        stored.overridden(engine="local", engine_timeout=5.0)


def test_replayed_responses_of_the_policy_itself_weigh_1_beside_those_of_servers(
    make_config: MakeConfig,
    served: MakeConfig,
) -> None:
    common: dict[str, Any] = {"replay_rollouts": 2, "eval_every": 0, "samples_per_prompt": 2, "num_epochs": 8}
    first = PPOTrainer(make_config(**common, max_steps=1, checkpoint_every=1), reward=spread).train(PROMPTS)
    trainer = PPOTrainer(served(**common, max_steps=2, importance_cap=1.0, checkpoint_every=1), reward=spread)
    learn, seen = trainer.model_trainer.train_policy_model, list[SAPairs]()

    def watched(batch: Any) -> Any:
        seen.append(batch.pairs)
        return learn(batch)

    trainer.model_trainer.train_policy_model = watched  # type: ignore[method-assign,assignment]
    trainer.train(PROMPTS, resume=first.run_dir)
    weights = seen[0].column("importance_weight")
    old, new = trainer.buffer.tables
    assert torch.equal(weights[: len(old)], torch.ones(len(old)))
    assert torch.equal(weights[len(old) :], new.column("importance_weight"))


def test_no_warning_where_nobody_needs_log_probabilities(
    trained: Run, servers: list[SmallServer], caplog: pytest.LogCaptureFixture
) -> None:
    run = str(trained())
    for temperature in ("0", "0.5"):
        asked = ["generate", "--run", run, "--prompt", "Tell", "--temperature", temperature, *urls(servers)]
        assert ppolm(asked) == 0
    assert "log-probabilities" not in caplog.text


def test_training_says_once_that_log_probabilities_are_recomputed_and_all_weights_are_1(
    served: MakeConfig,
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = PPOTrainer(served(temperature=0.5), reward=spread).train(PROMPTS).metrics
    assert caplog.text.count("importance weights are all 1") == 1
    assert [row["importance_mean"] for row in metrics] == [1.0] * 4
    assert [row["sampler_mismatch"] for row in metrics] == [0.0] * 4


def test_a_chat_is_sampled_as_its_text(
    models: Any, make_engine: Callable[..., VllmEngine], servers: list[SmallServer]
) -> None:
    models.setup.tokenizer.tokenizer.chat_template = "{% for m in messages %}<{{ m['content'] }}>{% endfor %}"
    chat = [[{"role": "user", "content": "Hello"}], [{"role": "user", "content": "Tell me"}]]
    texts, _ = Generator(make_engine(), models.setup, Sampling(8, greedy=True)).generate(chat)
    ours, _ = Generator(models.policy, models.setup, Sampling(8, greedy=True)).generate(chat)
    assert texts == ours
    sent = [request["prompt"] for server in servers for request in server.requests if request["max_tokens"] == 8]
    assert sorted(map(list, sent)) == sorted(text.prompt_ids for text in texts)
