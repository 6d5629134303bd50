"""Figures about people are those of tables worked by hand, and their intervals those of leaving one item out."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.feedback.agreement import Metric, cohen_kappa, krippendorff_alpha
from ppolm.feedback.agreement_intervals import alpha_interval, kappa_interval
from ppolm.feedback.people import GoldAnswer, people_figures
from ppolm.feedback.record import REPEAT, Details, Record, Source, response_id
from ppolm.feedback.win_rates import win_rates
from ppolm.measures.intervals import student_quantile

NOON = datetime(2026, 5, 1, tzinfo=timezone.utc)
METRICS: list[Metric] = ["nominal", "interval"]
values = st.integers(0, 3)


def by_leaving_out(statistic: Any, number: int) -> tuple[float, float] | None:
    """The jackknife as it is defined: the statistic again and again, without one item each time."""
    whole, without = statistic(range(number)), [statistic([j for j in range(number) if j != i]) for i in range(number)]
    if whole is None or any(value is None for value in without):
        return None
    error = math.sqrt((number - 1) / number * sum((value - np.mean(without)) ** 2 for value in without))
    reach = student_quantile(0.975, number - 1) * error
    return max(-1.0, whole - reach), min(1.0, whole + reach)


@given(st.lists(st.tuples(values, values), min_size=3, max_size=9), st.sampled_from(METRICS))
def test_the_interval_of_kappa_is_that_of_leaving_out_each_item(pairs: list[tuple[int, int]], metric: Metric) -> None:
    first, second = zip(*pairs, strict=True)
    expected = by_leaving_out(
        lambda rows: cohen_kappa([first[i] for i in rows], [second[i] for i in rows], metric), len(pairs)
    )
    found = kappa_interval(first, second, metric)
    assert (found is None) == (expected is None)
    if found is not None:
        assert (found.low, found.high) == pytest.approx(expected)
        assert found.mean == cohen_kappa(first, second, metric)


@given(st.lists(st.lists(values, min_size=2, max_size=4), min_size=3, max_size=7), st.sampled_from(METRICS))
def test_the_interval_of_alpha_is_that_of_leaving_out_each_item(units: list[list[int]], metric: Metric) -> None:
    expected = by_leaving_out(lambda rows: krippendorff_alpha([units[i] for i in rows], metric), len(units))
    found = alpha_interval([*units, [1]], metric)  # a unit with one value does not count
    assert (found is None) == (expected is None)
    if found is not None:
        assert (found.low, found.high) == pytest.approx(expected)


def test_the_interval_of_a_kappa_worked_by_hand() -> None:
    """Yes-yes 20, yes-no 5, no-yes 10, no-no 15: κ = 0.4; its large-sample error (Fleiss 1969) is 0.127."""
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    found = kappa_interval(first, second)
    assert found is not None
    assert (found.high - found.low) / 2 / 1.96 == pytest.approx(0.127, rel=0.06)
    assert kappa_interval(first[:2], second[:2]) is None


# ---- annotators -----------------------------------------------------------------------------------------------------


def prefer(number: int, answer: str, swapped: bool = False, annotator: str | None = "ann", **more: Any) -> Record:
    """Of "good" and "bad", the side that was shown first or second, a tie, or both bad."""
    sides = ("bad", "good") if swapped else ("good", "bad")
    chosen, rejected = sides[::-1] if answer == "second" else sides
    judged = Preference(Prompt(f"{number}?"), chosen, rejected, answer in ("tie", "both_bad"), annotator=annotator)
    policy = {"good": Source(policy="runs/a/best"), "bad": Source(policy="reference")}
    details = Details("study", f"item{number}", chosen_first=answer != "second", both_bad=answer == "both_bad", **more)
    time = NOON + timedelta(minutes=number)
    return Record(judged, f"{annotator}{number}{more}", time, policy[chosen], policy[rejected], details)


def test_figures_of_an_annotator_worked_by_hand() -> None:
    gold = {f"item{i}": GoldAnswer("first", response_id(f"{i}?", "good")) for i in range(4)}
    gold["item4"] = GoldAnswer("both_bad", response_id("4?", "good"))
    records = [
        prefer(0, "first", seconds=1.0, gold=True),  # right
        prefer(1, "second", seconds=3.0, gold=True),  # wrong
        prefer(2, "second", swapped=True, seconds=2.0, gold=True),  # right: the good one stood second
        prefer(3, "tie", gold=True),  # wrong
        prefer(4, "both_bad", gold=True),  # right
        prefer(5, "first"),
        prefer(5, "second", swapped=True, repetition=REPEAT),  # the same again
        prefer(6, "first"),
        prefer(6, "first", swapped=True, repetition=REPEAT),  # the same side, another answer
        prefer(7, "tie"),
        prefer(7, "both_bad", swapped=True, repetition=REPEAT),  # not the same
        prefer(9, "first", annotator=None),
    ]
    (ann,) = people_figures(records, gold)
    assert (ann.annotator, ann.judgements, ann.seconds) == ("ann", 11, 2.0)
    assert (ann.golds, ann.repeats, ann.decided) == (5, 3, 7)
    assert ann.gold is not None
    assert ann.consistency is not None
    assert ann.first is not None
    assert ann.gold.mean == pytest.approx(3 / 5)
    assert ann.consistency.mean == pytest.approx(1 / 3)
    assert ann.first.mean == pytest.approx(4 / 7)
    for share in (ann.gold, ann.consistency, ann.first):
        assert 0 <= share.low < share.mean < share.high <= 1


def test_scores_and_thumbs_have_right_answers_too() -> None:
    prompt, ids = Prompt("p?"), response_id("p?", "x")
    gold = {"s": GoldAnswer("5.0", ids), "t": GoldAnswer("down", ids), "u": GoldAnswer("up", ids)}
    records = [
        Record(Rating(prompt, "x", 6.0, annotator="ann"), details=Details(item="s")),  # within a point
        Record(Rating(prompt, "x", 6.5, annotator="ben"), details=Details(item="s")),
        Record(Thumb(prompt, "x", False, annotator="ann"), details=Details(item="t")),
        Record(Thumb(prompt, "x", False, annotator="ben"), details=Details(item="u")),
    ]
    ann, ben = people_figures(records, gold)
    assert (ann.golds, ben.golds) == (2, 2)
    assert ann.gold is not None
    assert ben.gold is not None
    assert (ann.gold.mean, ben.gold.mean) == (1.0, 0.0)
    assert (ann.seconds, ann.consistency, ann.first) == (None, None, None)


# ---- policies -------------------------------------------------------------------------------------------------------


def test_a_win_rate_counts_ties_as_half_and_every_annotator_once() -> None:
    records = [
        prefer(0, "first"),
        prefer(1, "second", swapped=True),
        prefer(2, "tie"),
        prefer(3, "both_bad"),
        prefer(4, "second"),
        prefer(4, "second", swapped=True, repetition=REPEAT),  # a repeat is no other vote
        prefer(0, "first", annotator="ben"),  # the same prompt: one piece of evidence
        Record(Preference(Prompt("5?"), "x", "y", annotator="ann")),  # nobody knows whose
    ]
    (rate,) = win_rates(records)
    assert (rate.study, rate.policy, rate.opponent) == ("study", "runs/a/best", "reference")
    assert (rate.comparisons, rate.prompts, rate.ties) == (6, 5, 2)
    assert rate.rate.mean == pytest.approx((1 + 1 + 0.5 + 0.5 + 0 + 1) / 6)
    assert 0 <= rate.rate.low < rate.rate.mean < rate.rate.high <= 1


def test_a_win_rate_is_not_certain_because_all_agree() -> None:
    (rate,) = win_rates([prefer(number, "first") for number in range(20)])
    assert rate.rate.mean == 1.0
    assert 0.7 < rate.rate.low < 0.95
