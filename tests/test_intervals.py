"""Intervals of means: by hand where possible, and as often right as they claim."""

from __future__ import annotations

import numpy as np
import pytest

from ppolm.evaluation.intervals import difference_interval, mean_interval


def test_equal_values_leave_no_doubt() -> None:
    interval = mean_interval([0.25] * 10)
    assert (interval.mean, interval.low, interval.high) == (0.25, 0.25, 0.25)


def test_the_same_values_give_the_same_interval() -> None:
    values = np.random.default_rng(3).normal(size=50).tolist()
    assert mean_interval(values) == mean_interval(values)


def test_drawing_in_parts_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(4).normal(size=301).tolist()
    whole = mean_interval(values)
    monkeypatch.setattr("ppolm.evaluation.intervals.DRAWS_AT_ONCE", 1000)
    assert mean_interval(values) == whole


def test_it_agrees_with_the_normal_interval_of_many_values() -> None:
    values = np.random.default_rng(0).normal(2.0, 3.0, size=2000)
    interval, error = mean_interval(values.tolist()), values.std() / np.sqrt(2000)
    assert interval.low == pytest.approx(values.mean() - 1.96 * error, abs=0.02)
    assert interval.high == pytest.approx(values.mean() + 1.96 * error, abs=0.02)


def test_95_of_100_intervals_hold_the_truth() -> None:
    random = np.random.default_rng(1)
    intervals = [mean_interval(random.exponential(1.0, size=100).tolist()) for _ in range(200)]
    held = sum(interval.low <= 1.0 <= interval.high for interval in intervals) / 200
    assert 0.89 <= held <= 0.99


def test_what_prompts_have_in_common_cancels_in_a_difference() -> None:
    hard_and_easy = np.random.default_rng(2).normal(0, 10, size=100)
    change = difference_interval(hard_and_easy.tolist(), (hard_and_easy + 0.5).tolist())
    assert change.mean == pytest.approx(0.5)
    assert change.excludes_zero
    assert not mean_interval((hard_and_easy - hard_and_easy.mean()).tolist()).excludes_zero
