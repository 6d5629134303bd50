"""Whole commands with ``--engine mlx``: it trains, resumes, evaluates and answers as with the local engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.data.prompts import as_prompts
from ppolm.embedded import DEMO
from ppolm.evaluation.gain import gain_of
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.side_by_side import SideBySide
from ppolm.rollout.sampling import Sampled, Sampling
from ppolm.storage.metrics_log import read_metrics
from ppolm.studies.from_policies import sample
from ppolm.studies.policy import find_policies
from ppolm.token_attribution.token_attribution import AGREES
from tests.conftest import PROMPTS, spread
from tests.engines.mlx_models import needs_mlx
from tests.runs.compared_runs import STATEFUL, assert_same_run

pytestmark = needs_mlx

MakeConfig = Callable[..., PPOConfig]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many responses MLX was asked for, call by call."""
    from ppolm.engines.mlx_engine import MLXEngine

    seen: list[int] = []
    generate = MLXEngine.generate

    def watch(self: Any, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor) -> list[Sampled]:
        seen.append(len(prompts))
        return generate(self, prompts, sampling, uniforms)

    monkeypatch.setattr(MLXEngine, "generate", watch)
    return seen


def test_a_few_steps_eval_and_generate_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[int]
) -> None:
    run, posts = tmp_path / "runs" / "short", tmp_path / "posts.jsonl"
    rows = [json.dumps({"prompt": post.content}) for post in load_prompts("embedded:test")[:4]]
    posts.write_text("\n".join(rows))
    small = ["--batch-size", "8", "--minibatch-size", "4", "--max-steps", "3", "--max-eval-prompts", "8"]
    where = ["--output-dir", str(tmp_path / "runs"), "--run-name", "short", "--log-to"]
    assert ppolm(["train", "--model-name", "embedded", "--engine", "mlx", *small, *where]) == 0
    assert asked == [8, 8, 8, 8, 8], "an evaluation, three steps, an evaluation"
    steps = read_metrics(run, "train")
    assert [row["step"] for row in steps] == [1, 2, 3]
    assert all(0 < row["sampler_mismatch"] < AGREES for row in steps), "measured, and no more than rounding"
    assert all(row["first_mismatch"] < AGREES for row in steps), "the update starts from its own log-probabilities"
    asked.clear()
    capsys.readouterr()
    answers = []
    for flags in ([], ["--engine", "local"], ["--engine", "mlx"]):
        assert ppolm(["generate", "--run", str(run), "--prompts", str(posts), "--json", *flags]) == 0
        answers.append(capsys.readouterr().out)
    assert asked == [4, 4], "what the run was trained with, unless the command says otherwise"
    assert answers[0] == answers[1] == answers[2]
    asked.clear()
    reports = []
    for engine in ("mlx", "local"):
        assert ppolm(["eval", str(run), "--json", "--engine", engine]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert asked == [8, 8], "reference and policy"
    assert reports[0]["policy"]["judge"] == reports[1]["policy"]["judge"]
    assert reports[0]["policy"]["kl"] == pytest.approx(reports[1]["policy"]["kl"], abs=1e-3)


def test_a_resumed_run_equals_the_uninterrupted_one_to_the_last_bit(make_config: MakeConfig) -> None:
    prompts, calls = [f"Prompt number {i} of some:" for i in range(14)], []
    whole, cut = (make_config(**STATEFUL, engine="mlx", run_name=name) for name in ("whole", "cut"))

    def failing(prompts: list[str], responses: list[Any]) -> list[float]:
        calls.append(len(responses))
        if len(calls) == 7:  # evaluations at 0 and 2 and steps 1 to 4 are behind us; the checkpoint is that of step 3
            raise KeyboardInterrupt
        return spread(prompts, responses)

    run = PPOTrainer(whole, reward=spread).train(prompts).run_dir
    with pytest.raises(KeyboardInterrupt):
        PPOTrainer(cut, reward={"spread": failing}).train(prompts)
    resumed = PPOTrainer(cut, reward=spread).train(prompts, resume=run.with_name("cut")).run_dir
    assert_same_run(run, resumed)


def test_a_resumed_run_may_change_its_engine(make_config: MakeConfig, asked: list[int]) -> None:
    first = PPOTrainer(make_config(engine="mlx", max_steps=2, num_epochs=4), reward=spread).train(PROMPTS)
    assert asked
    asked.clear()
    later = PPOTrainer(make_config(engine="local", max_steps=3, num_epochs=4), reward=spread)
    assert later.train(PROMPTS, resume=first.run_dir).steps == 3
    assert not asked, "sampled locally from here on"


def test_both_engines_give_the_same_first_step_and_the_same_update(make_config: MakeConfig) -> None:
    results = []
    for engine in ("local", "mlx"):
        trainer = PPOTrainer(make_config(engine=engine), reward=spread)
        step = trainer.ppo_step(PROMPTS[:4])
        results.append((step["sa_pairs"], list(trainer.models.policy.parameters().values())))
    (ours, weights), (theirs, others) = results
    assert torch.equal(ours.column("action_id"), theirs.column("action_id"))
    assert torch.equal(ours.column("logprob_policy"), theirs.column("logprob_policy")), "scored by the same pass"
    assert all(torch.equal(one, other) for one, other in zip(weights, others, strict=True))


def test_side_by_side_and_studies_sample_the_policy_with_the_engine_and_the_reference_locally(
    make_config: MakeConfig, asked: list[int]
) -> None:
    run = PPOTrainer(make_config(max_steps=2, eval_fraction=0.3), reward=spread).train(PROMPTS).run_dir
    (prompt,) = as_prompts(PROMPTS[:1])
    answers = [
        SideBySide(run, machine={"engine": engine}).answer(prompt, Sampling(6), seed=1) for engine in ("local", "mlx")
    ]
    assert asked == [1]
    assert answers[0].policy.token_ids == answers[1].policy.token_ids
    assert answers[0].reference.token_ids == answers[1].reference.token_ids
    texts = [
        sample(find_policies([str(run)], machine={"engine": engine})[0], as_prompts(PROMPTS), 2, seed=0)
        for engine in ("local", "mlx")
    ]
    assert asked == [1, 2 * len(PROMPTS)]
    assert texts[0] == texts[1]


def test_the_demo_learns(tmp_path: Path) -> None:
    """The whole demo with this engine: docs/engines.md."""
    config = PPOConfig.from_yaml(DEMO).changed(
        dtype="float32",
        device="cpu",
        engine="mlx",
        max_steps=8,
        eval_every=8,
        max_eval_prompts=64,
        output_dir=str(tmp_path),
        log_to=(),
    )
    prompts = {name: load_prompts(str(getattr(config, name))) for name in ("prompts", "eval_prompts")}
    results = PPOTrainer(config).train(prompts["prompts"], eval_prompts=prompts["eval_prompts"])
    gain = gain_of(results.evaluations, -1, "judge")
    assert gain is not None
    print(f"gold {results.evaluations[0]['judge']:.3f} -> {results.evaluations[-1]['judge']:.3f}, gain {gain}")
    assert gain.low > 0.05, "gold, which the policy is not trained on"
    assert max(row["sampler_mismatch"] for row in results.metrics) < AGREES
