"""The numbers of a readiness report, checked by hand: pairs, length, single answers and edits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppolm.data.same_text import prompt_numbers
from ppolm.measures.intervals import cluster_interval, mean_interval, statistic_interval
from ppolm.measures.words import words
from ppolm.readiness.accuracy import calibration, correct, distribution, ties
from ppolm.readiness.correlations import auc, partial_spearman, pearson, ranks, spearman
from ppolm.readiness.edits import EDITS, PADDING, edit_report
from ppolm.readiness.length import balancing_weights, length_report, matched_pairs
from tests.readiness.scorers import array, pairs

# Intervals by prompt


def test_one_value_per_prompt_gives_the_interval_of_a_mean() -> None:
    values = np.random.default_rng(5).normal(size=40)
    clustered, plain = cluster_interval(values, range(40)), mean_interval(values.tolist())
    assert (clustered.mean, clustered.low, clustered.high) == pytest.approx((plain.mean, plain.low, plain.high))


def test_a_prompt_counts_for_as_many_pairs_as_it_has() -> None:
    interval = cluster_interval([1, 1, 1, 0], [7, 7, 7, 2])
    assert interval.mean == 0.75  # the mean of the prompts' means would be 0.5
    assert interval.low < 0 < 1 < interval.high  # two prompts show nothing


def test_pairs_that_repeat_a_prompt_are_no_further_evidence() -> None:
    values = np.random.default_rng(1).normal(size=60)
    alone = cluster_interval(values, range(60))
    repeated = cluster_interval(np.repeat(values, 5), np.repeat(range(60), 5))
    assert (repeated.low, repeated.high) == pytest.approx((alone.low, alone.high))


def test_weights_weigh_and_a_prompt_without_weight_is_none() -> None:
    interval = cluster_interval([1.0, 0.0, 1.0], [0, 1, 2], [3.0, 1.0, 0.0])
    assert interval == cluster_interval([1.0, 0.0], [0, 1], [3.0, 1.0])
    assert interval.mean == 0.75


def test_any_statistic_agrees_with_the_mean() -> None:
    values, clusters = np.random.default_rng(2).normal(size=600), np.arange(600) // 3
    direct, general = (
        cluster_interval(values, clusters),
        statistic_interval(lambda r: float(values[r].mean()), clusters),
    )
    assert general.mean == pytest.approx(direct.mean)
    assert (general.low, general.high) == pytest.approx((direct.low, direct.high), abs=0.01)


def test_prompts_are_the_same_by_their_content_also_in_chat() -> None:
    chat = [{"role": "user", "content": "Hi"}]
    assert prompt_numbers(["a", chat, "b", [dict(chat[0])], "a"]).tolist() == [0, 1, 2, 1, 0]


# Measures of pairs


def test_equal_scores_are_half_right() -> None:
    assert correct(array(2.0, 0.0, -1.0)).tolist() == [1.0, 0.5, 0.0]


@pytest.mark.pictures
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30))
def test_negated_scores_are_right_where_the_others_were_wrong(differences: list[float]) -> None:
    right, wrong = correct(array(*differences)), correct(-array(*differences))
    assert right.mean() == pytest.approx(1 - wrong.mean())


def test_calibration_by_hand() -> None:
    sure = np.log(0.95 / 0.05)  # σ(sure) = 0.95
    measured = calibration(array(sure, sure, sure, -sure, 0.0, 0.0))
    assert [bucket.count for bucket in measured.buckets] == [2, 0, 0, 0, 4]
    first, last = measured.buckets[0], measured.buckets[-1]
    assert (first.low, first.high, first.confidence, first.accuracy) == (0.5, 0.6, 0.5, 0.5)
    assert (last.confidence, last.accuracy) == pytest.approx((0.95, 0.75))
    assert measured.buckets[2].accuracy is None
    assert measured.ece == pytest.approx(4 / 6 * 0.2)
    assert measured.overconfidence == pytest.approx((4 * 0.95 + 2 * 0.5) / 6 - (3 + 1) / 6)


def test_calibrated_scores_stay_within_chance_and_inflated_ones_do_not() -> None:
    random = np.random.default_rng(0)
    true = random.normal(0, 1.5, size=2000)
    oriented = np.where(random.random(2000) < 1 / (1 + np.exp(-true)), true, -true)
    honest, inflated = calibration(oriented), calibration(5 * oriented)
    assert honest.ece < 0.05
    assert inflated.ece > max(0.1, inflated.ece_by_chance)
    assert inflated.overconfidence > 0.1


def test_ties_stand_beside_decided_pairs() -> None:
    measured = ties(array(0.5, -1.5), array(3.0, -1.0))
    assert measured is not None
    assert (measured.count, measured.difference, measured.decided_difference) == (2, 1.0, 2.0)
    assert ties(array(), array(1.0)) is None


def test_the_distribution_counts_every_score_once() -> None:
    measured = distribution({"chosen": array(0, 1, 2, 3, 4), "rejected": array(-4, 0)})
    assert [sum(spread.histogram) for spread in measured.spreads.values()] == [5, 2]
    assert measured.spreads["chosen"].quantiles["50 %"] == 2.0
    assert measured.edges[0] == -4.0


# Length


def test_length_by_hand() -> None:
    chosen = ["a b c d", "a b c", "a", "a b"]
    rejected = ["a b", "a b", "a b", "c d"]
    report = length_report(chosen, rejected, array(1.0, -1.0, 2.0, 1.0), range(4))
    assert (report.unit, report.longer_wins) == ("words", True)
    assert report.baseline.mean == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert report.gain.mean == pytest.approx(3 / 4 - 2.5 / 4)
    assert report.prefers_longer == pytest.approx(1 / 3)  # only in the first pair
    assert report.people_prefer_longer == pytest.approx(2 / 3)
    assert report.correlation == pytest.approx((1 * 2 - 1 * 1 - 2 * 1) / np.sqrt(7 * 6))
    assert report.longer_won is not None
    assert report.longer_won.mean == 0.5
    assert report.shorter_won is not None
    assert report.shorter_won.mean == 1.0


def test_where_shorter_answers_win_the_baseline_takes_the_shorter() -> None:
    report = length_report(["a"] * 3, ["a b c"] * 3, array(1, 1, 1), range(3))
    assert not report.longer_wins
    assert report.baseline.mean == 1.0


def test_matched_pairs_are_within_a_tenth_or_else_the_closest_quarter() -> None:
    within, rule = matched_pairs(np.repeat(array(0.05, 0.5), 20))
    assert within.tolist() == list(range(20))
    assert "10%" in rule
    closest, rule = matched_pairs(array(0.5, 0.3, 0.9, 0.4, 0.2))
    assert closest.tolist() == [4, 1]
    assert "closest quarter" in rule
    assert "30%" in rule


def test_balancing_weights_by_hand() -> None:
    longer = array(0, 1, 1, 1, -1)  # one stratum would have 3 of 4 longer winners; strata of one pair get weight 0
    assert balancing_weights(longer, array(0, 0.1, 0.2, 0.3, 0.4)).tolist() == [1, 0, 0, 0, 0]
    weights = balancing_weights(np.tile(array(1, 1, 1, -1), 5), np.repeat(array(0.1, 0.2, 0.3, 0.4, 0.5), 4))
    assert weights.tolist() == [0.5, 0.5, 0.5, 1.5] * 5


@given(st.integers(0, 10_000), st.floats(0.2, 0.95), st.floats(0.1, 3.0))
def test_whoever_knows_only_length_has_a_balanced_accuracy_of_a_half(seed: int, longer: float, power: float) -> None:
    """For any share of longer winners, and any increasing function of length as the score."""
    rows = pairs(60, longer, seed)
    sides = zip(*(row.answers.values() for row in rows), strict=True)
    chosen, rejected = (array(*(len(words(text)) for text in side)) for side in sides)
    weights = balancing_weights(chosen - rejected, np.abs(chosen - rejected) / np.maximum(chosen, rejected))
    right = correct(chosen**power - rejected**power)
    assert (weights * right).sum() == pytest.approx(weights.sum() / 2)


def test_a_noisy_length_counter_gains_nothing_where_large_differences_decide_more_often() -> None:
    """Its mistakes are on pairs of close length, in which the shorter answer wins more often."""
    random = np.random.default_rng(0)
    first, second = random.integers(3, 40, size=(2, 4000))
    wins = random.random(4000) < 1 / (1 + np.exp(-(first - second) / 5))
    long, short = np.where(wins, first, second), np.where(wins, second, first)
    difference = (long - short) + random.normal(0, 6, size=4000)
    report = length_report(["w " * n for n in long], ["w " * n for n in short], difference, range(4000))
    assert report.balanced is not None
    assert report.balanced.mean == pytest.approx(0.5, abs=0.04)


# Single answers


def test_ranks_share_ties() -> None:
    assert ranks(array(3, 1, 3, 2)).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_correlations_by_hand() -> None:
    assert pearson(array(1, 2, 3), array(1, 2, 4)) == pytest.approx(3 / np.sqrt(2 * 14 / 3))
    assert spearman(array(1, 2, 3, 4), array(10, 30, 20, 40)) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert spearman(array(1, 2, 3), array(1, 8, 27)) == pytest.approx(1.0)
    assert spearman(array(0.1, 0.1, 0.1), array(1, 2, 3)) == 0.0


def test_what_length_explains_is_no_skill() -> None:
    lengths, human = array(1, 2, 3, 4, 5), array(2, 1, 3, 5, 4)
    assert partial_spearman(lengths * 2, human, lengths) == 0.0
    a, b, c = spearman(human, array(5, 1, 4, 2, 3)), spearman(human, lengths), spearman(array(5, 1, 4, 2, 3), lengths)
    expected = (a - b * c) / np.sqrt((1 - b**2) * (1 - c**2))
    assert partial_spearman(human, array(5, 1, 4, 2, 3), lengths) == pytest.approx(expected)


def test_auc_by_hand() -> None:
    # Of the four pairs of up and down, 3 > 1, 3 > 2, 2 > 1 are right and 2 = 2 is half right.
    assert auc(array(3, 2, 1, 2), array(1, 1, 0, 0)) == pytest.approx(3.5 / 4)
    assert auc(array(3, 2), array(1, 1)) == 0.5


# Edits


def test_edits_do_what_they_say() -> None:
    answer = " The cat sat. Was it tired?"
    assert EDITS["trailing space"](answer) == f"{answer} "
    assert EDITS["repeated sentence"](answer) == f"{answer} Was it tired?"
    assert EDITS["repeated sentence"]("no end") == "no end no end"
    assert EDITS["repeated sentence"]("...") == "... ..."
    assert EDITS["repeated sentence"]("One.\nTwo ") == "One.\nTwo Two"
    assert EDITS["padding words"](answer) == answer + PADDING


def test_sensitivity_by_hand() -> None:
    before, after = array(0.0, 1.0, 5.0, 4.0), array(2.0, 1.0, 4.0, 4.5)
    report = edit_report(before, after, [0, 0, 1, 1], std=2.0, pairs=[(0, 1), (2, 3)])
    assert report.change.mean == pytest.approx((2 + 0 - 1 + 0.5) / 4 / 2)
    assert report.size == pytest.approx((2 + 0 + 1 + 0.5) / 4 / 2)
    assert report.gained == 0.5
    assert report.flipped == 0.5  # the first pair's lower answer goes from 0 to 2 > 1, the second's from 4 to 4.5 < 5
    assert edit_report(before, after, [0, 0, 1, 1], 0.0).flipped is None
