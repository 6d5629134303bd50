"""Constructed runs get the verdict that a careful person would give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ppolm.evaluation.alarms import Limits
from ppolm.evaluation.verdict import judge, judge_run
from ppolm.measures.intervals import mean_error

Array = npt.NDArray[np.float64]
Scores = Callable[[int, Array, np.random.Generator], Array]
"""Rewards of the responses in an evaluation, given its number and how easy each prompt is."""
HEALTHY = {
    "kl_per_token": 0.05,
    "entropy": 2.0,
    "response_length": 20.0,
    "ended_fraction": 0.9,
    "repetition": 0.02,
    "distinct_2": 0.8,
    "reference_surprise": 2.0,
}


def constructed(
    scores: Scores,
    *,
    prompts: int = 64,
    rows: int = 1,
    evaluations: int = 4,
    seed: int = 0,
    judge_scores: Scores | None = None,
    **changes: Callable[[int], float],
) -> list[dict[str, float]]:
    """The evaluations of a run on ``prompts`` prompts with ``rows`` rows each; ``changes`` set other metrics."""
    random = np.random.default_rng(seed)
    easy = np.repeat(random.normal(size=prompts), rows)
    clusters = np.repeat(np.arange(prompts), rows)
    history: list[dict[str, float]] = []
    firsts: dict[str, Array] = {}
    for number in range(evaluations):
        row: dict[str, float] = {"step": 10 * number, "num_prompts": prompts, "num_responses": len(easy), **HEALTHY}
        if number == 0:
            row |= {"kl_per_token": 0.0}
        row |= {name: change(number) for name, change in changes.items()}
        for name, made in (("reward", scores), ("judge", judge_scores)):
            if made is not None:
                values = made(number, easy, random)
                row["avg_reward" if name == "reward" else name] = float(values.mean())
                row[f"{name}_std"] = float(values.std())
                if number:
                    row[f"{name}_gain_error"] = mean_error(values - firsts[name], clusters)
                firsts.setdefault(name, values)
        history.append(row)
    return history


def noise(number: int, easy: Array, random: np.random.Generator) -> Array:
    return easy + random.normal(size=len(easy))


def gain(number: int, easy: Array, random: np.random.Generator) -> Array:
    return easy + 0.4 * number + random.normal(scale=0.5, size=len(easy))


def verdict(history: list[dict[str, float]]) -> tuple[str, str]:
    _, found = judge_run(history, Limits())
    return found.status, "; ".join(found.reasons)


def test_a_real_gain_is_an_improvement_with_its_interval() -> None:
    status, why = verdict(constructed(gain))
    assert status == "improved"
    assert "at step 30: +1.07 [+0.855, +1.28]" in why


def test_noise_alone_is_hardly_ever_an_improvement() -> None:
    """The best of ten evaluations is chosen, and the interval is corrected for that."""
    found = [verdict(constructed(noise, evaluations=11, seed=seed))[0] for seed in range(400)]
    assert set(found) <= {"unclear", "unchanged", "improved"}
    assert found.count("improved") <= 0.05 * len(found)


def test_noise_that_repeats_its_prompts_is_no_better() -> None:
    def by_prompt(number: int, easy: Array, random: np.random.Generator) -> Array:
        return easy + np.repeat(random.normal(size=len(easy) // 6), 6)  # all rows of a prompt are lucky together

    found = [verdict(constructed(by_prompt, prompts=32, rows=6, seed=seed))[0] for seed in range(300)]
    assert found.count("improved") <= 0.05 * len(found)


def test_a_gain_with_kl_run_away_is_collapse() -> None:
    status, why = verdict(constructed(gain, kl_per_token=lambda number: 0.6 * number))
    assert status == "collapsed"
    assert "KL ran away" in why


def test_gibberish_with_a_rising_reward_is_suspect_and_never_the_best() -> None:
    history = constructed(
        gain,
        kl_per_token=lambda number: 0.7 * (number > 0),
        reference_surprise=lambda number: 2.0 + 0.8 * (number > 0),
    )
    status, why = verdict(history)
    assert status == "suspect"
    assert "KL 0.7 per token" in why
    assert "0.8 nats per token less likely than its own" in why
    performance, now = judge(history, Limits())
    assert (performance.best_step, performance.performance_improved, now.status) == (0, False, "suspect")


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("ended_fraction", (0.9, 0.0), "responses that end 90% -> 0%"),
        ("repetition", (0.02, 0.4), "repetition 2% -> 40%"),
        ("distinct_2", (0.8, 0.1), "answers have become alike"),
    ],
)
def test_worse_texts_make_a_rising_reward_suspect(name: str, values: tuple[float, float], said: str) -> None:
    changes: dict[str, Any] = {name: lambda number: values[number > 0]}
    status, why = verdict(constructed(gain, **changes))
    assert status == "suspect"
    assert said in why


def test_a_judge_that_clearly_rose_overrules_such_signs_and_one_that_did_not_makes_a_gain_unclear() -> None:
    assert verdict(constructed(gain, judge_scores=gain, kl_per_token=lambda n: 0.7 * (n > 0)))[0] == "improved"
    status, why = verdict(constructed(gain, judge_scores=noise, seed=3))
    assert status == "unclear"
    assert "the judge, which is not trained on, does not confirm it" in why


def test_responses_that_never_ended_are_no_objection_but_said() -> None:
    status, why = verdict(constructed(gain, ended_fraction=lambda _: 0.0))
    assert status == "improved"
    assert "only 0% of the responses ended" in why


def test_six_prompts_show_nothing_whatever_they_gain() -> None:
    status, why = verdict(constructed(gain, prompts=6))
    assert status == "unclear"
    assert "only 6 held-out prompts" in why


def test_many_responses_to_few_prompts_are_few_prompts() -> None:
    assert verdict(constructed(gain, prompts=6, rows=50))[0] == "unclear"


def test_an_earlier_healthy_gain_counts_and_the_later_suspect_one_is_passed_over() -> None:
    history = constructed(gain, kl_per_token=lambda number: 0.8 * (number > 2))
    performance, found = judge_run(history, Limits())
    assert (found.status, performance.best_step) == ("improved", 20)
    assert "at step 30 does not count: KL 0.8 per token" in "; ".join(found.reasons)


def test_a_run_that_stopped_for_lack_of_progress_is_judged_by_what_it_gained() -> None:
    history = constructed(lambda n, easy, random: gain(min(n, 1), easy, random), evaluations=5)
    history[1]["avg_reward"] += 1.0
    _, found = judge_run(history, Limits(patience=3))
    assert found.status == "improved"
    assert "no rise over" in found.reasons[-1]


def test_rewards_of_unknown_spread_are_unclear() -> None:
    assert verdict([{"step": 0, "avg_reward": 0.0}, {"step": 1, "avg_reward": 1.0}])[0] == "unclear"
