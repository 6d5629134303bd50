"""The gold judge gives each merit and each fault its documented weight."""

from __future__ import annotations

from random import Random

import pytest

from ppolm.embedded.world import Facts, write_post
from ppolm.embedded.world.gold import gold, gold_reward, judge_summary, preference_row, prefers_first
from ppolm.errors import RewardError
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.rewards.function_reward import FunctionReward

FACTS = Facts("sister", "hates my haircut", "made a schedule", "nothing changed", "am I overreacting")
POST = write_post(FACTS, Random(0))
GOOD = "My sister hates my haircut. I made a schedule but nothing changed. Am I overreacting?"


@pytest.mark.parametrize(
    ("summary", "score"),
    [
        (GOOD, 1.0),
        (GOOD.upper(), 1.0),
        ("", 0.0),
        ("My sister hates my haircut.", 0.4),
        ("My sister hates my haircut", 0.2),
        ("My brother hates my haircut.", 0.0),
        ("My sister hates my haircut. I made a schedule but nothing changed. Is this normal?", 0.6),
        ("My sister hates my haircut. I made a schedule but nothing changed. Am I overreacting? Oh dear me.", 1 - 0.09),
        ("The sister hates my haircut.", 0.2 - 0.03),
    ],
)
def test_scores_computed_by_hand(summary: str, score: float) -> None:
    assert gold(POST, summary) == pytest.approx(score)
    assert gold(POST.text, summary) == pytest.approx(score)


def test_saying_it_twice_costs_the_repeated_share_and_the_extra_words() -> None:
    seen = judge_summary(POST, f"{GOOD} {GOOD}")
    assert seen.repetition > 0.4
    assert seen.extra_words == 15
    assert seen.score == pytest.approx(max(0.0, 1 - seen.repetition - 15 * 0.03))


def test_what_the_judge_saw_is_named() -> None:
    seen = judge_summary(POST, "My brother hates my haircut. Is this normal")
    assert seen.covered == ("problem",)
    assert seen.wrong == ("brother", "is this normal")
    assert not seen.ended


def test_preferences_follow_the_score_but_for_the_noise() -> None:
    random = Random(0)
    assert all(prefers_first(POST, GOOD, "My sister.", 0.0, random) for _ in range(50))
    assert not any(prefers_first(POST, GOOD, "My sister.", 1.0, random) for _ in range(50))
    share = sum(prefers_first(POST, GOOD, "My sister.", 0.2, random) for _ in range(2000)) / 2000
    assert share == pytest.approx(0.8, abs=0.03)
    ties = sum(prefers_first(POST, GOOD, GOOD, 0.0, random) for _ in range(2000)) / 2000
    assert ties == pytest.approx(0.5, abs=0.05)
    row = preference_row(POST, ("My sister.", GOOD), 0.0, random)
    assert row == {"prompt": POST.text, "chosen": f" {GOOD}", "rejected": " My sister."}


def test_gold_as_a_reward_explains_why_it_cannot_score_other_prompts() -> None:
    computer = RewardComputer({"gold": FunctionReward(gold_reward, "gold", timeout=5.0)})
    assert computer.compute_rewards([POST.text], [GOOD]) == [1.0]
    with pytest.raises(RewardError, match="not a post of the embedded world"):
        computer.compute_rewards(["Tell me a story."], [GOOD])
