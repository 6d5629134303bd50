"""Scores are checked, summed and normalised, and never silently wrong."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ppolm.errors import RewardError
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.reward_kl.reward_normalizer import RewardNormalizer
from ppolm.rewards.build import weighted_sum
from ppolm.rollout.generated_text import GeneratedText
from tests.conftest import bytes_below_128, vowels
from tests.reward_cases import PROMPTS, RESPONSES, Function, computer, lengths, wrap

# ---- scores per token and sums --------------------------------------------------------------------------------------


def test_scores_per_token_have_one_number_for_each_token_eos_included(texts: list[GeneratedText]) -> None:
    scores = computer(bytes_below_128).compute_rewards(texts)
    assert scores == [[1.0] * 4, [1.0] * 3, [1.0] * 8]


def test_weighted_sum_of_numbers() -> None:
    both = RewardComputer(wrap(vowels=vowels, lengths=lengths), weights=[2.0, -0.5])
    rewards = both.compute_rewards(PROMPTS, ["aloe", "xyz", ""])
    assert rewards == [2 * 3 - 0.5 * 4, -1.5, 0.0]
    assert rewards.components == {"vowels": 1.0, "lengths": pytest.approx(7 / 3)}


def test_rewards_without_weights_count_equally() -> None:
    assert RewardComputer(wrap(a=lengths, b=lengths)).compute_rewards(["p"], ["four"]) == [8.0]


def test_number_joins_token_scores_on_the_last_token() -> None:
    assert weighted_sum([[1.0, 2.0, 3.0], 10.0], [2.0, 0.5]) == [2.0, 4.0, 11.0]
    assert weighted_sum([10.0, [1.0], [5.0]], [1.0, 1.0, -1.0]) == [6.0]


def test_weighted_sum_keeps_the_total(texts: list[GeneratedText]) -> None:
    both = RewardComputer(wrap(tokens=bytes_below_128, lengths=lengths), weights=[0.25, 2.0])
    scores = both.compute_rewards(texts)
    assert scores[0] == [0.25, 0.25, 0.25, 0.25 + 2 * 3]
    assert [sum(score) for score in scores if isinstance(score, list)] == [7.0, 6.75, 16.0]


# ---- functions that fail --------------------------------------------------------------------------------------------


def fails_on_no_idea(answer: Any) -> Function:
    """A reward that is fine but for one response."""

    def score(_prompts: Sequence[str], responses: Sequence[str]) -> list[Any]:
        return [answer() if response == "no idea" else 1.0 for response in responses]

    return score


def explode() -> float:
    raise ZeroDivisionError("division by zero")


SINGLE_FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (explode, "raised ZeroDivisionError: division by zero"),
    "nan": (lambda: math.nan, "returned nan, expected a finite number"),
    "infinity": (lambda: -math.inf, "returned -inf, expected a finite number"),
    "tensor nan": (lambda: torch.tensor(math.nan), "returned nan, expected a finite number"),
    "text": (lambda: "good", "returned 'good', expected a number"),
    "none": (lambda: None, "returned None, expected a number"),
    "token text": (lambda: [1.0, "x"], "returned 'x', expected a number"),
    "token nan": (lambda: [1.0, math.nan], "returned nan, expected a finite number"),
    "token count": (lambda: [1.0, 2.0], "returned 2 token scores for a response of 8 tokens"),
}


@pytest.mark.parametrize("fault", SINGLE_FAULTS)
def test_bad_score_is_an_error_that_names_its_prompt(texts: list[GeneratedText], fault: str) -> None:
    answer, message = SINGLE_FAULTS[fault]
    with pytest.raises(RewardError, match=f"Reward mine {message}.*'Is it late\\?'.*on_reward_error: default"):
        computer(fails_on_no_idea(answer)).compute_rewards(texts)


@pytest.mark.parametrize("fault", SINGLE_FAULTS)
def test_bad_score_gives_the_default_and_the_others_keep_theirs(
    texts: list[GeneratedText], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer, message = SINGLE_FAULTS[fault]
    mine = computer(fails_on_no_idea(answer), on_error="default", default_reward=-5.0)
    rewards = mine.compute_rewards(texts)
    assert rewards == [1.0, 1.0, -5.0]
    assert rewards.failed == 1
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "1 of 3 scores set to -5" in record.getMessage()
    assert message in record.getMessage()
    assert rewards.components == {"mine": pytest.approx(-1.0)}
    assert mine.compute_rewards(texts).failed == 1, "each call tells of its own"


def test_cause_of_an_error_is_kept(texts: list[GeneratedText]) -> None:
    with pytest.raises(RewardError) as caught:
        computer(fails_on_no_idea(explode)).compute_rewards(texts)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


WHOLE_FAULTS: dict[str, tuple[Any, str]] = {
    "too few": ([1.0, 2.0], "returned 2 scores for 3 responses.*'Is it late\\?'"),
    "too many": ([1.0] * 5, "returned 5 scores for 3 responses.*'Is it late\\?'"),
    "none at all": ([], "returned 0 scores for 3 responses.*'Is water wet\\?'"),
    "a number": (1.0, "returned float, expected a list.*'Is water wet\\?'"),
    "nothing": (None, "returned NoneType, expected a list.*'Is water wet\\?'"),
    "a mapping": ({"rewards": [1.0] * 3}, "returned dict, expected a list.*'Is water wet\\?'"),
}


@pytest.mark.parametrize("fault", WHOLE_FAULTS)
def test_answer_of_a_wrong_form_is_an_error_that_names_a_prompt(fault: str) -> None:
    answer, message = WHOLE_FAULTS[fault]
    with pytest.raises(RewardError, match=message):
        computer(lambda *_: answer).compute_rewards(PROMPTS, RESPONSES)


@pytest.mark.parametrize("fault", WHOLE_FAULTS)
def test_answer_of_a_wrong_form_gives_the_default_to_all_if_others_were_good(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [[1.0, 2.0, 3.0], WHOLE_FAULTS[fault][0]]
    mine = computer(lambda *_: answers.pop(0), on_error="default", default_reward=0.5)
    assert mine.compute_rewards(PROMPTS, RESPONSES) == [1.0, 2.0, 3.0]
    rewards = mine.compute_rewards(PROMPTS, RESPONSES)
    assert rewards == [0.5] * 3
    assert rewards.failed == 3
    assert [record.levelno for record in caplog.records] == [logging.ERROR], "a whole call is no bad row"


def always_explodes(prompts: list[str], responses: list[str]) -> list[float]:
    raise ZeroDivisionError("division by zero")


def test_a_reward_that_has_never_given_a_score_is_an_error_even_with_a_default() -> None:
    mine = computer(always_explodes, on_error="default", default_reward=0.5)
    with pytest.raises(RewardError, match=r"mine has given no score yet: every one of its first 3 failed.*ZeroDiv"):
        mine.compute_rewards(PROMPTS, RESPONSES)
    one_by_one = computer(always_explodes, on_error="default", default_reward=0.5)
    assert one_by_one.compute_rewards(PROMPTS[:1], RESPONSES[:1]) == [0.5], "a single one may be a bad row"
    with pytest.raises(RewardError, match="every one of its first 2 failed"):
        one_by_one.compute_rewards(PROMPTS[:1], RESPONSES[:1])


def test_of_several_rewards_the_one_that_never_works_is_named() -> None:
    both = RewardComputer(wrap(good=lengths, bad=always_explodes), on_error="default")
    with pytest.raises(RewardError, match="Reward bad has given no score yet"):
        both.compute_rewards(PROMPTS, RESPONSES)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Lets whatever a test made wait go on once the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_function_that_takes_too_long_is_an_error_and_is_not_asked_again(release: threading.Event) -> None:
    calls: list[int] = []

    def slow(prompts: list[str], _responses: list[str]) -> list[float]:
        calls.append(len(prompts))
        release.wait(30)
        return [1.0] * len(prompts)

    with pytest.raises(RewardError, match=r"Reward mine took longer than reward_timeout 0\.05 s.*'Is water wet\?'"):
        computer(slow, timeout=0.05).compute_rewards(PROMPTS, RESPONSES)
    mine = computer(slow, timeout=0.05, on_error="default", default_reward=9.0)
    mine.unanswered.clear()  # as if it had been faster before
    rewards = mine.compute_rewards(PROMPTS, RESPONSES)
    assert rewards == [9.0] * 3
    assert rewards.failed == 3
    assert calls == [3, 3]


def test_one_failing_reward_of_two_leaves_the_other_in_the_sum() -> None:
    both = RewardComputer(
        wrap(good=lengths, bad=fails_on_no_idea(explode)),
        weights=[1.0, 10.0],
        on_error="default",
        default_reward=-1.0,
    )
    assert both.compute_rewards(PROMPTS, RESPONSES) == [13.0, 13.0, 7.0 - 10.0]


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
