"""The Evaluator's metrics and its verdict."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from ppolm.config import PPOConfig
from ppolm.data.prompts import as_prompts
from ppolm.evaluation.alarms import Limits
from ppolm.evaluation.evaluator import Evaluator
from ppolm.evaluation.measurement import Measurement
from ppolm.evaluation.quality import distinct, quality_metrics, rouge_l, rouge_n
from ppolm.evaluation.verdict import judge, judge_run
from ppolm.measures.words import repetition
from ppolm.ppo_trainer import PPOTrainer
from ppolm.storage.metrics_log import read_metrics
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]


def evaluation(step: int, avg_reward: float, **others: float) -> dict[str, float]:
    healthy = {"reward_std": 0.5, "num_responses": 64, "kl_per_token": 0.01, "entropy": 2.0, "response_length": 20.0}
    return {"step": step, "avg_reward": avg_reward, **(healthy | others)}


def test_the_first_evaluation_is_the_baseline() -> None:
    performance, convergence = judge([evaluation(0, 1.0)], Limits())
    assert performance.performance_improved
    assert convergence.status == "baseline"
    assert not convergence.should_stop


def test_a_higher_reward_is_an_improvement_and_a_lower_one_is_not() -> None:
    rising = [evaluation(0, 1.0), evaluation(1, 1.2)]
    assert judge(rising, Limits())[1].status == "rising"
    performance, convergence = judge([*rising, evaluation(2, 1.1)], Limits())
    assert convergence.status == "unchanged"
    assert (performance.best_reward, performance.best_step) == (1.2, 1)


def test_patience_without_improvement_is_convergence() -> None:
    history = [evaluation(0, 1.0), evaluation(1, 1.2), evaluation(2, 1.2), evaluation(3, 1.1)]
    assert judge(history[:3], Limits(patience=2))[1].status == "unchanged"
    convergence = judge(history, Limits(patience=2))[1]
    assert convergence.converged
    assert convergence.should_stop
    assert "no rise over 1.2 (step 1) in 2 evaluations" in convergence.reasons[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"avg_reward": 0.3}, "reward fell from 1 to 0.3"),
        ({"kl_per_token": 1.5}, "KL ran away"),
        ({"entropy": 0.01}, "entropy died"),
        ({"response_length": 101.0}, "lengths ran away"),
        ({"response_length": 3.0}, "lengths ran away"),
    ],
)
def test_every_kind_of_collapse_is_named(changes: dict[str, float], reason: str) -> None:
    convergence = judge([evaluation(0, 1.0), evaluation(1, **({"avg_reward": 1.1} | changes))], Limits())[1]
    assert convergence.collapsed
    assert convergence.should_stop
    assert reason in convergence.reasons[0]


def test_a_reward_bought_by_collapse_is_never_the_best() -> None:
    history = [evaluation(0, 1.0), evaluation(1, 1.5), evaluation(2, 9.0, kl_per_token=5.0)]
    performance, convergence = judge_run(history, Limits())
    assert convergence.collapsed
    assert (performance.best_step, performance.performance_improved) == (1, False)


def test_a_fall_that_chance_explains_is_no_collapse() -> None:
    few = [evaluation(0, 1.0, num_responses=2, reward_std=0.0), evaluation(1, 0.2, num_responses=2, reward_std=0.0)]
    many = [evaluation(0, 1.0), evaluation(1, 0.2)]
    assert not judge(few, Limits())[1].collapsed
    assert judge(many, Limits())[1].collapsed


def test_the_verdict_on_a_run_is_about_its_best_policy() -> None:
    rows = [evaluation(0, 1.0), evaluation(5, 2.0), evaluation(9, 1.9)]
    performance, convergence = judge_run(rows, Limits())
    assert convergence.status == "improved"
    assert "1 -> 2 at step 5" in convergence.reasons[0]
    assert judge_run([rows[0], evaluation(5, 0.9)], Limits())[1].status == "unchanged"
    assert performance.best_step == 5


def test_measure_gives_every_promised_number_and_repeats_itself(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(), reward=spread)
    rows = [{"prompt": prompt, "completion": "some words"} for prompt in PROMPTS]
    evaluator = Evaluator(trainer, as_prompts(rows))
    measured = evaluator.measure()
    metrics = measured.metrics
    promised = {"avg_reward", "kl", "entropy", "value_accuracy", "response_length", "repetition", "distinct_1"}
    assert promised | {"distinct_2", "rouge_1", "rouge_l"} <= metrics.keys()
    assert metrics["kl"] == 0
    assert len(measured.scores["reward"]) == len(measured.samples) == len(PROMPTS)
    assert evaluator.measure() == measured
    trainer.ppo_step(PROMPTS[:4])
    assert evaluator.measure() != measured


def test_a_collapsed_run_stops_and_points_to_the_best_policy(make_config: MakeConfig) -> None:
    config = make_config(
        learning_rate=0.3,
        max_grad_norm=100.0,
        eval_every=1,
        eval_fraction=0.4,
        batch_size=4,
        num_epochs=20,
        collapse_kl=0.2,
    )
    results = PPOTrainer(config, reward=spread).train(PROMPTS)
    assert (results.stopped, results.verdict) == ("collapsed", "collapsed")
    assert results.steps < 20
    assert "KL ran away" in "; ".join(results.reasons)
    assert "use the best one instead" in results.summary()
    best = json.loads((results.best_dir / "best.json").read_text())
    assert best["kl_per_token"] <= 0.2
    assert read_metrics(results.run_dir, "eval")[-1]["status"] == "collapsed"


def test_text_metrics_match_hand_counts() -> None:
    assert repetition("a b c a b c") == pytest.approx(1 - 3 / 4)  # abc bca cab abc
    assert repetition("too short") == 0
    assert distinct(["a b", "a c"], 1) == pytest.approx(3 / 4)
    assert distinct(["a b", "a b"], 2) == pytest.approx(1 / 2)
    assert distinct([""], 1) == 0
    assert repetition("да да да да да") == pytest.approx(1 - 1 / 3)
    assert distinct(["猫 猫狗"], 1) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("text", "reference", "rouge_1", "rouge_l_score"),
    [
        # from the rouge-score 0.1.2 package, without stemming
        ("the cat sat on the mat", "the cat was on the mat", 0.833333, 0.833333),
        ("police killed the gunman", "the gunman killed police", 1.0, 0.5),
        ("A quick, brown fox!", "the quick brown dog jumps", 0.444444, 0.444444),
        ("", "something", 0.0, 0.0),
    ],
)
def test_rouge_equals_the_reference_implementation(
    text: str, reference: str, rouge_1: float, rouge_l_score: float
) -> None:
    assert rouge_n(text, reference) == pytest.approx(rouge_1, abs=1e-5)
    assert rouge_l(text, reference) == pytest.approx(rouge_l_score, abs=1e-5)


def test_rouge_is_over_the_rows_that_have_references() -> None:
    metrics: dict[str, Any] = quality_metrics(["a cat", "a dog"], ["a cat", None])
    assert metrics["rouge_1"] == 1
    assert "rouge_1" not in quality_metrics(["a cat"], [None])


def test_measuring_counts_its_own_reward_failures_and_leaves_those_of_training_alone(make_config: MakeConfig) -> None:
    def bad(prompts: list[str], responses: list[str]) -> list[float]:
        return [0.5] + [float("nan")] * (len(responses) - 1)

    trainer = PPOTrainer(make_config(on_reward_error="default"), reward=bad)
    trainer.ppo_step(PROMPTS[:2])
    assert Evaluator(trainer, as_prompts(PROMPTS)).measure().metrics["reward_failures"] == 5
    assert trainer.reward_failures == 1


def test_an_evaluator_of_ones_own_is_used(make_config: MakeConfig) -> None:
    class Optimist(Evaluator):
        def measure(self, greedy: bool = False) -> Measurement:
            measured = super().measure(greedy)
            happy = {"avg_reward": 100.0 + self.trainer.step}
            return dataclasses.replace(measured, metrics=measured.metrics | happy)

    config = make_config(eval_every=1, eval_fraction=0.4)
    results = PPOTrainer(config, reward=spread, evaluator=Optimist).train(PROMPTS)
    assert [row["avg_reward"] for row in results.evaluations] == [100.0, 101.0]
