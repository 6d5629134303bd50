"""Verdicts on scorers with known faults."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.measures.words import words
from ppolm.readiness import assess, readiness_summary
from ppolm.readiness.edits import PADDING
from tests.readiness.scorers import counting, guessing, pairs, quality, skilled, text, topics

# Verdicts


def test_a_scorer_with_real_skill_is_ready() -> None:
    readiness = assess(pairs(400), skilled)
    assert readiness.verdict == "ready", readiness_summary(readiness)
    assert "verdict: ready" in readiness_summary(readiness)


def test_a_perfect_scorer_is_never_wrong() -> None:
    rows = [row for row in pairs(600) if quality(row.chosen) > quality(row.rejected)]
    readiness = assess(rows, lambda _, responses: [10 * quality(response) for response in responses])
    assert readiness.accuracy is not None
    assert (readiness.accuracy.mean, readiness.accuracy.high) == (1.0, 1.0)
    assert 0.98 < readiness.accuracy.low < 1.0  # even hundreds of pairs do not prove an accuracy of 1
    assert readiness.mistakes == ()
    assert readiness.verdict == "ready", readiness_summary(readiness)


@pytest.mark.parametrize("seed", range(5))
def test_a_guessing_scorer_is_not_ready(seed: int) -> None:
    readiness = assess(pairs(300, seed=seed), guessing)
    assert readiness.verdict == "not ready"
    assert "accuracy" in topics(readiness)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("longer", [1.0, 0.8, 0.59])
def test_a_scorer_that_counts_words_is_not_ready_because_of_length(longer: float, seed: int) -> None:
    readiness = assess(pairs(400, longer, seed), counting)
    assert readiness.verdict == "not ready"
    assert "length" in topics(readiness)
    assert "not been shown to know more than length" in readiness_summary(readiness)


def test_skill_counts_also_where_longer_answers_mostly_win() -> None:
    """Quality decides, and the better answer happens to be the longer one four times in five."""
    random, rows = Random(0), []
    for number in range(600):
        better, worse = sorted((random.uniform(3, 7) for _ in range(2)), reverse=True)
        long, short = random.randint(20, 30), random.randint(5, 15)
        lengths = (long, short) if random.random() < 0.8 else (short, long)
        answers = (text(better, lengths[0], random), text(worse, lengths[1], random))
        chosen, rejected = answers if random.random() < 0.9 else answers[::-1]
        rows.append(Preference(Prompt(f"Question {number}?"), chosen, rejected))
    assert "length" not in topics(assess(rows, skilled))
    assert "length" in topics(assess(rows, counting))


def test_a_scorer_that_pays_for_padding_is_not_ready() -> None:
    def score(_: Sequence[Any], responses: Sequence[str]) -> list[float]:
        return [quality(response) + 1.5 * response.endswith(PADDING) for response in responses]

    readiness = assess(pairs(400), score)
    assert topics(readiness) == {"edits"}
    assert readiness.edits["padding words"].gained == 1.0
    assert "padding words alone raises the score" in readiness_summary(readiness)


def test_a_scorer_that_a_space_upsets_is_weak() -> None:
    def score(_: Sequence[Any], responses: Sequence[str]) -> list[float]:
        return [quality(response) - 0.6 * response.endswith(" ") for response in responses]

    readiness = assess(pairs(400), score)
    assert readiness.verdict == "weak"
    assert topics(readiness, "weak") == {"edits"}


def test_swapped_labels_are_noticed() -> None:
    readiness = assess(pairs(300), lambda _, responses: [-quality(response) for response in responses])
    assert readiness.verdict == "not ready"
    assert "swapped" in readiness_summary(readiness)


def test_inflated_scores_are_weak_because_they_are_over_confident() -> None:
    readiness = assess(pairs(400), lambda _, responses: [20 * quality(response) for response in responses])
    assert readiness.verdict == "weak"
    assert topics(readiness, "weak") == {"calibration"}
    assert "over-confident" in readiness_summary(readiness)


def test_an_annotator_who_contradicts_the_model_is_named() -> None:
    good = pairs(400, annotator="ada")
    bad = [Preference(r.prompt, r.rejected, r.chosen, annotator="bob") for r in pairs(60, seed=1)]
    readiness = assess([*good, *bad], skilled)
    assert list(readiness.agreement) == ["ada", "bob"]
    assert readiness.agreement["bob"].rows == 60
    assert readiness.verdict == "weak"
    assert "annotator bob contradicts it" in readiness_summary(readiness)


def test_few_rows_are_never_ready() -> None:
    perfect = [row for row in pairs(300) if quality(row.chosen) > quality(row.rejected)]
    assert "rows" in topics(assess(perfect[:10], skilled))
    some = assess(perfect[:60], skilled)
    assert some.verdict == "weak"
    assert "only 60 held-out rows, expected at least 100" in readiness_summary(some)


def test_pairs_of_a_few_prompts_are_few() -> None:
    rows = [Preference(Prompt(f"Question {i % 4}?"), row.chosen, row.rejected) for i, row in enumerate(pairs(200))]
    readiness = assess(rows, skilled)
    assert readiness.rows["prompts"] == 4
    assert "rows" in topics(readiness)


def single_answers(count: int, seed: int = 0) -> list[tuple[Prompt, str]]:
    random = Random(seed)
    return [(Prompt(f"Question {i}?"), text(random.gauss(5, 1.5), random.randint(4, 30), random)) for i in range(count)]


def test_scores_decide_where_there_are_no_pairs() -> None:
    rows = [Rating(prompt, answer, round(quality(answer))) for prompt, answer in single_answers(150)]
    assert assess(rows, skilled).verdict == "ready"
    assert topics(assess(rows, guessing)) == {"scores"}
    long = [Rating(prompt, answer, len(words(answer))) for prompt, answer in single_answers(150)]
    assert "length" in topics(assess(long, counting))


def test_thumbs_decide_where_there_are_no_pairs() -> None:
    rows = [Thumb(prompt, answer, quality(answer) > 5) for prompt, answer in single_answers(150)]
    readiness = assess(rows, skilled)
    assert readiness.thumbs is not None
    assert readiness.thumbs.auc.mean == 1.0
    assert readiness.verdict == "ready"
    assert topics(assess(rows, guessing)) == {"thumbs"}


def test_beside_pairs_scores_can_only_raise_doubts() -> None:
    ratings = [Rating(prompt, answer, number % 5) for number, (prompt, answer) in enumerate(single_answers(100))]
    readiness = assess([*pairs(400), *ratings], skilled)
    assert readiness.verdict == "weak"
    assert topics(readiness, "weak") == {"scores"}
