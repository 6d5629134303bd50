"""Scores are checked and summed, and never silently wrong."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from ppolm.errors import RewardError
from ppolm.ppo_trainer.reward_computer import RewardComputer
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
    """A reward that fails on one response only."""

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
    """Releases waiting threads at the end of a test."""
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
