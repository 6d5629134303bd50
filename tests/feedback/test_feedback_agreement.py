"""Agreement statistics match the literature, and are None where they are undefined."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.feedback.agreement import Metric, cohen_kappa, krippendorff_alpha
from ppolm.feedback.record import Record
from ppolm.feedback.summary import summarise

KRIPPENDORFF_2011 = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
"""Four observers, twelve units, missing values: section E of "Computing Krippendorff's Alpha-Reliability"."""
METRICS: list[Metric] = ["nominal", "interval"]


def delta(metric: Metric, a: float, b: float) -> float:
    return float(a != b) if metric == "nominal" else float(a - b) ** 2


@pytest.mark.parametrize(("metric", "published"), [("nominal", 0.743), ("interval", 0.849)])
def test_alpha_of_the_published_table(metric: Metric, published: float) -> None:
    units = [[value for value in unit if value is not None] for unit in zip(*KRIPPENDORFF_2011, strict=True)]
    assert krippendorff_alpha(units, metric) == pytest.approx(published, abs=5e-4)


def test_alpha_of_the_published_binary_example() -> None:
    """Section A of the same paper: two observers, ten units, alpha = 0.095."""
    first, second = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert krippendorff_alpha(list(zip(first, second, strict=True))) == pytest.approx(0.095, abs=5e-4)


def test_kappa_of_a_table_worked_by_hand() -> None:
    """Yes-yes 20, yes-no 5, no-yes 10, no-no 15: p_o = 0.7, p_e = 0.5 · 0.6 + 0.5 · 0.4 = 0.5, so κ = 0.4."""
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)


def test_weighted_kappa_of_a_table_worked_by_hand() -> None:
    """(1, 1), (2, 3), (3, 3): observed 1/3; expected (0 + 4 + 4 + 1 + 1 + 1 + 4 + 0 + 0) / 9 = 15/9; κ = 0.8."""
    assert cohen_kappa([1, 2, 3], [1, 3, 3], "interval") == pytest.approx(0.8)


values = st.integers(0, 4)


@given(st.lists(st.lists(values, max_size=4), max_size=8), st.sampled_from(METRICS))
def test_alpha_equals_its_definition_by_loops(units: list[list[int]], metric: Metric) -> None:
    pairable = [unit for unit in units if len(unit) > 1]
    everything = [value for unit in pairable for value in unit]
    n = len(everything)
    observed = sum(
        delta(metric, unit[i], unit[j]) / (len(unit) - 1)
        for unit in pairable
        for i, j in itertools.permutations(range(len(unit)), 2)
    )
    expected = sum(delta(metric, a, b) for a, b in itertools.permutations(everything, 2))
    found = krippendorff_alpha(units, metric)
    if expected == 0:
        assert found is None
    else:
        assert found == pytest.approx(1 - (observed / n) / (expected / (n * (n - 1))))


@given(st.lists(st.tuples(values, values), min_size=1, max_size=9), st.sampled_from(METRICS))
def test_kappa_equals_its_definition_by_loops(pairs: list[tuple[int, int]], metric: Metric) -> None:
    first, second = zip(*pairs, strict=True)
    observed = sum(delta(metric, a, b) for a, b in pairs) / len(pairs)
    expected = sum(delta(metric, a, b) for a in first for b in second) / len(pairs) ** 2
    found = cohen_kappa(first, second, metric)
    if expected == 0:
        assert found is None
    else:
        assert found == pytest.approx(1 - observed / expected)


@pytest.mark.parametrize("metric", METRICS)
def test_perfect_agreement_is_one_and_nothing_is_none(metric: Metric) -> None:
    assert cohen_kappa([1, 2, 3], [1, 2, 3], metric) == 1
    assert krippendorff_alpha([[1, 1], [2, 2, 2]], metric) == 1
    assert cohen_kappa([], [], metric) is None
    assert cohen_kappa([1, 1], [1, 1], metric) is None
    assert krippendorff_alpha([], metric) is None
    assert krippendorff_alpha([[1], [2]], metric) is None
    with pytest.raises(ValueError, match="2 and 1 values"):
        cohen_kappa([1, 2], [1], metric)


# ---- what a store says of its judgements ----------------------------------------------------------------------------


def records(*judgements: Any) -> list[Record]:
    start = datetime(2026, 5, 1, tzinfo=timezone.utc)
    return [Record(judged, time=start + timedelta(hours=i)) for i, judged in enumerate(judgements)]


def rate(prompt: str, score: float, annotator: str | None) -> Rating:
    return Rating(Prompt(prompt), "answer", score, annotator=annotator)


def test_duplicates_changes_of_mind_and_conflicts_are_told_apart() -> None:
    summary = summarise(
        records(
            rate("a", 1, "ann"),
            rate("a", 1, "ann"),  # a duplicate
            rate("a", 1, "ben"),  # agrees: neither duplicate nor conflict
            rate("b", 1, "ann"),
            rate("b", 2, "ann"),  # changed
            rate("c", 1, "ann"),
            rate("c", 2, "ben"),  # a conflict
            rate("d", 1, None),
            rate("d", 1, None),  # unknown annotators: not a duplicate
        )
    )["scores"]
    assert (summary.judgements, summary.items) == (9, 4)
    assert (summary.duplicates, summary.changed, summary.conflicts) == (1, 1, 1)
    assert summary.annotators == {"": 2, "ann": 5, "ben": 2}
    assert summary.overlap == 3
    assert [(pair.annotators, pair.items) for pair in summary.pairs] == [(("ann", "ben"), 2)]


def test_agreement_on_comparisons_does_not_depend_on_which_side_came_first() -> None:
    """Two annotators agree on eight pairs and differ on two; with two sides, chance agreement is about one half."""
    judged = []
    for number in range(10):
        prompt = Prompt(f"prompt {number}")
        judged.append(Preference(prompt, "good", "bad", annotator="ann"))
        flipped = number >= 8
        judged.append(Preference(prompt, *(("bad", "good") if flipped else ("good", "bad")), annotator="ben"))
    summary = summarise(records(*judged))["preferences"]
    assert summary.conflicts == 2
    assert summary.alpha is not None
    assert summary.alpha == pytest.approx(0.6, abs=0.1)
    (pair,) = summary.pairs
    assert pair.kappa == pytest.approx(0.6, abs=0.1)


def test_too_little_overlap_gives_no_number() -> None:
    summary = summarise(records(rate("a", 1, "ann"), rate("a", 2, "ben"), rate("b", 3, "ann")))
    assert (summary["scores"].overlap, summary["scores"].alpha) == (1, None)
    assert summary["scores"].pairs[0].kappa is None
    thumbs = summarise(records(*(Thumb(Prompt(p), "x", True, annotator=n) for p in "ab" for n in ("ann", "ben"))))
    assert (thumbs["thumbs"].overlap, thumbs["thumbs"].alpha) == (2, None)  # all verdicts are the same
