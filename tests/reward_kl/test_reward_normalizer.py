"""Scores are normalised by what was seen, and never blown up."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ppolm.reward_kl.reward_normalizer import RewardNormalizer
from tests.reward_cases import PROMPTS, RESPONSES, computer, lengths

# ---- normalisation --------------------------------------------------------------------------------------------------

BATCHES = st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6), min_size=1, max_size=6)


def test_no_normalisation_leaves_scores_as_they_are() -> None:
    assert RewardNormalizer("none").normalize([5.0, [1.0, 2.0]]) == [5.0, [1.0, 2.0]]


@given(scores=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20))
@settings(max_examples=60, deadline=None)
def test_batch_normalisation_has_mean_zero_and_deviation_one(scores: list[float]) -> None:
    normal = np.array(RewardNormalizer("batch").normalize(scores))
    np.testing.assert_allclose(normal * (np.std(scores) + 1e-8), np.array(scores) - np.mean(scores), atol=1e-6)
    assert abs(normal.mean()) < 1e-4
    if np.std(scores) > 1e-3:
        assert normal.std() == pytest.approx(1.0, abs=1e-4)


def test_equal_scores_become_zero() -> None:
    assert RewardNormalizer("batch").normalize([0.1] * 7) == pytest.approx([0.0] * 7, abs=1e-6)


@given(batches=BATCHES)
@settings(max_examples=60, deadline=None)
def test_running_statistics_are_those_of_all_scores_so_far(batches: list[list[float]]) -> None:
    normalizer = RewardNormalizer("running")
    seen: list[float] = []
    for batch in batches:
        normal = normalizer.normalize(batch)
        seen += batch
        if len(seen) == 1 or np.ptp(seen) == 0:
            assert normal == [0.0] * len(batch), "without a deviation there is nothing to compare with"
        else:
            np.testing.assert_allclose(
                np.array(normal) * (np.std(seen) + 1e-8), np.array(batch) - np.mean(seen), atol=1e-6
            )
    state = normalizer.state_dict()
    assert state["count"] == len(seen)
    assert state["mean"] == pytest.approx(np.mean(seen), abs=1e-6)
    assert state["sum_squares"] / len(seen) == pytest.approx(np.var(seen), rel=1e-6, abs=1e-6)


def test_evaluation_uses_the_running_statistics_without_changing_them() -> None:
    normalizer = RewardNormalizer("running")
    normalizer.normalize([0.0, 2.0])
    before = normalizer.state_dict()
    assert normalizer.normalize([3.0], update=False) == pytest.approx([2.0])
    assert normalizer.state_dict() == before


def test_running_statistics_continue_from_a_checkpoint() -> None:
    first, second = RewardNormalizer("running"), RewardNormalizer("running")
    first.normalize([0.0, 2.0, 7.0])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.normalize([1.0, 5.0]) == first.normalize([1.0, 5.0])


@pytest.mark.parametrize("mode", ["batch", "running"])
def test_a_single_response_is_measured_by_all_that_were_seen_before(mode: str) -> None:
    normalizer = RewardNormalizer(mode)
    assert normalizer.normalize([1e6]) == [0.0], "the very first one has nothing to be compared with"
    normalizer.normalize([1000.0, 3000.0])
    resumed = RewardNormalizer(mode)
    resumed.load_state_dict(json.loads(json.dumps(normalizer.state_dict())))
    seen = [1e6, 1000.0, 3000.0, 5000.0]
    expected = [(5000.0 - np.mean(seen)) / np.std(seen)]
    assert normalizer.normalize([5000.0]) == pytest.approx(expected)
    assert resumed.normalize([5000.0]) == pytest.approx(expected)
    assert normalizer.state_dict() == resumed.state_dict()


def test_a_batch_of_several_is_measured_by_itself_whatever_came_before() -> None:
    normalizer = RewardNormalizer("batch")
    normalizer.normalize([1e6, -1e6, 5.0])
    assert normalizer.normalize([1.0, 3.0]) == pytest.approx([-1.0, 1.0])


@pytest.mark.parametrize("mode", ["batch", "running"])
@pytest.mark.parametrize("score", [0.0, 0.1, -7e9, 1e15 / 3])
def test_equal_scores_of_any_scale_are_exactly_zero(mode: str, score: float) -> None:
    normalizer = RewardNormalizer(mode)
    for size in (1, 7, 3):
        assert normalizer.normalize([score] * size) == [0.0] * size
    assert normalizer.normalize([score + 1e9], update=False) == [0.0], "no deviation is no unit to measure with"


@pytest.mark.parametrize("mode", ["batch", "running"])
@pytest.mark.parametrize("nudge", [0.0, 1e-9])
def test_token_scores_whose_totals_hardly_differ_are_not_blown_up(mode: str, nudge: float) -> None:
    scores = [[1000.0, -1000.0], [-500.0, 500.0 + nudge]]
    for normal in (RewardNormalizer(mode).normalize(scores), RewardNormalizer(mode).normalize(scores[:1])):
        sizes = [abs(x) for score in normal if isinstance(score, list) for x in score]
        assert 1.0 < max(sizes) < 15.0
        assert isinstance(normal[0], list)
        assert normal[0][0] == -normal[0][1]
    assert RewardNormalizer(mode).normalize([[0.0, 0.0], [0.0]]) == [[0.0, 0.0], [0.0]]


def test_token_scores_count_with_their_total_and_are_only_divided() -> None:
    # Totals 1 and 3: mean 2, deviation 1. Shifting every token would reward or punish length.
    assert RewardNormalizer("batch").normalize([[0.5, 0.5], 3.0]) == [pytest.approx([0.5, 0.5]), pytest.approx(1.0)]


def test_missing_eos_costs_the_penalty_and_only_where_eos_is_missing() -> None:
    mine = computer(lengths, missing_eos_penalty=2.0)
    scores = mine.normalize_rewards([1.0, 1.0, [0.5, 0.25], [0.5, 0.25]], torch.tensor([True, False, True, False]))
    assert scores == [1.0, -1.0, [0.5, 0.25], [0.5, -1.75]]


def test_missing_eos_penalty_is_not_scaled_by_the_normalisation() -> None:
    mine = computer(lengths, normalize="batch", missing_eos_penalty=2.0)
    scores = mine.normalize_rewards([1000.0, 3000.0], torch.tensor([True, False]))
    assert scores == pytest.approx([-1.0, 1.0 - 2.0])


def test_scores_that_are_reported_are_raw_and_normalising_leaves_them_so() -> None:
    mine = computer(lengths, normalize="batch", missing_eos_penalty=1.0)
    raw = mine.compute_rewards(PROMPTS, RESPONSES)
    mine.normalize_rewards(raw, torch.tensor([False] * 3))
    assert raw == [3.0, 3.0, 7.0]
