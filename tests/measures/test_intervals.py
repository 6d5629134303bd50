"""Intervals of means: by hand where possible, and as often right as they claim."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from ppolm.measures.intervals import (
    Interval,
    cluster_interval,
    mean_error,
    mean_interval,
    share_interval,
    statistic_interval,
    student_quantile,
)

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int_]
Draw = Callable[[np.random.Generator], tuple[Array, Numbers, float]]
"""Values, their prompts, and the true mean."""


def test_equal_values_leave_no_doubt() -> None:
    interval = mean_interval([0.25] * 10)
    assert (interval.mean, interval.low, interval.high) == (0.25, 0.25, 0.25)


def test_two_values_by_hand() -> None:
    """Without the one the mean is the other: se = √(1/2 · (1 + 1)) = 1, and t of one degree of freedom is 12.7."""
    interval = mean_interval([0.0, 2.0])
    assert mean_error([0.0, 2.0], [0, 1]) == pytest.approx(1.0)
    assert interval.mean == 1.0
    assert interval.high - interval.mean == pytest.approx(student_quantile(0.975, 1))


@pytest.mark.parametrize(("freedom", "quantile"), [(5, 2.571), (7, 2.365), (15, 2.131), (63, 1.998), (10**6, 1.960)])
def test_quantiles_of_student_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, abs=0.004)


def test_one_prompt_has_no_interval() -> None:
    for interval in (mean_interval([0.5]), cluster_interval([0.0, 1.0], [3, 3])):
        assert (interval.mean, interval.low, interval.high) == (0.5, -math.inf, math.inf)
        assert str(interval) == "0.500 (of one prompt: no interval)"
        assert not interval.excludes_zero


def test_a_share_of_few_prompts_is_never_certain() -> None:
    one = share_interval([0.0], [0])
    assert one.mean == 0.0
    assert one.low == 0.0
    assert one.high > 0.6
    ten = share_interval([1.0] * 10, range(10))
    assert ten.mean == ten.high == 1.0
    assert 0.5 < ten.low < 0.8


def test_drawing_in_parts_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(4).normal(size=301)

    def median() -> Interval:
        return statistic_interval(lambda rows: float(np.median(values[rows])), range(301))

    whole = median()
    monkeypatch.setattr("ppolm.measures.intervals.DRAWS_AT_ONCE", 1000)
    assert median() == whole


def test_it_agrees_with_the_normal_interval_of_many_values() -> None:
    values = np.random.default_rng(0).normal(2.0, 3.0, size=2000)
    interval, error = mean_interval(values.tolist()), values.std() / np.sqrt(2000)
    assert interval.low == pytest.approx(values.mean() - 1.96 * error, abs=0.02)
    assert interval.high == pytest.approx(values.mean() + 1.96 * error, abs=0.02)


# ---- As often right as they claim ------------------------------------------------------------------------------------


def rewards(prompts: int, rows: tuple[int, int], skewed: bool = False) -> Draw:
    """Rewards of responses: each prompt has its own level, and so many rows."""

    def draw(random: np.random.Generator) -> tuple[Array, Numbers, float]:
        clusters = np.repeat(np.arange(prompts), random.integers(rows[0], rows[1] + 1, size=prompts))
        levels = random.exponential(size=prompts) - 1 if skewed else random.normal(size=prompts)
        return levels[clusters] + random.normal(size=len(clusters)), clusters, 0.0

    return draw


def right_or_wrong(prompts: int, rows: tuple[int, int]) -> Draw:
    """Pairs that a scorer gets right two times in three, on some prompts more often than on others."""

    def draw(random: np.random.Generator) -> tuple[Array, Numbers, float]:
        clusters = np.repeat(np.arange(prompts), random.integers(rows[0], rows[1] + 1, size=prompts))
        chances = random.beta(2, 1, size=prompts)
        return (random.random(len(clusters)) < chances[clusters]).astype(float), clusters, 2 / 3

    return draw


@pytest.mark.parametrize(
    ("interval", "draw"),
    [
        pytest.param(cluster_interval, rewards(200, (6, 6)), id="200 prompts with 6 rows each"),
        pytest.param(cluster_interval, rewards(64, (1, 1)), id="64 prompts"),
        pytest.param(cluster_interval, rewards(16, (1, 1)), id="16 prompts"),
        pytest.param(cluster_interval, rewards(40, (1, 12)), id="40 prompts with 1 to 12 rows"),
        pytest.param(cluster_interval, rewards(100, (1, 12), skewed=True), id="100 skewed prompts with 1 to 12 rows"),
        pytest.param(share_interval, right_or_wrong(40, (1, 12)), id="right or wrong, 40 prompts with 1 to 12 rows"),
        pytest.param(share_interval, right_or_wrong(20, (1, 1)), id="right or wrong, 20 prompts"),
    ],
)
def test_95_of_100_intervals_hold_the_truth_also_where_prompts_repeat(
    interval: Callable[[Array, Numbers], Interval], draw: Draw
) -> None:
    random, held = np.random.default_rng(0), 0
    for _ in range(1000):
        values, clusters, truth = draw(random)
        found = interval(values, clusters)
        held += found.low <= truth <= found.high
    assert 930 <= held <= 970


def test_rows_counted_as_if_each_were_a_prompt_of_its_own_promise_too_much() -> None:
    """What the clusters are for: the same draws without them hold the truth far less often than 95 times in 100."""
    random, draw, held = np.random.default_rng(0), rewards(200, (6, 6)), 0
    for _ in range(200):
        values, _, truth = draw(random)
        found = mean_interval(values.tolist())
        held += found.low <= truth <= found.high
    assert held < 0.8 * 200
