"""Several judgements of the same item are combined by each rule."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.feedback.record import Record
from ppolm.feedback.resolve import Rule, resolve

# ---- several judgements of the same thing ---------------------------------------------------------------------------

CAT = Prompt("What is a cat?")
NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)


def at(hour: int, judgement: Any) -> Record:
    return Record(judgement, time=NOON + timedelta(hours=hour))


def prefer(chosen: str, rejected: str, annotator: str | None, **more: Any) -> Preference:
    return Preference(CAT, chosen, rejected, annotator=annotator, **more)


def settled(records: list[Record], rule: Rule) -> list[Any]:
    return [record.judgement for record in resolve(records, rule)]


def test_all_keeps_all_and_latest_keeps_the_last_word_of_each_annotator() -> None:
    first, second = at(1, prefer("a", "b", "ann")), at(2, prefer("b", "a", "ann"))
    other, unnamed = at(3, prefer("a", "b", "ben")), [at(4, prefer("a", "b", None)), at(5, prefer("a", "b", None))]
    records = [second, first, other, *unnamed]
    assert resolve(records, "all") == records
    assert resolve(records, "latest") == [second, other, *unnamed]


def test_majority_of_comparisons_thumbs_and_scores() -> None:
    votes = [at(1, prefer("a", "b", "ann", margin=1.0)), at(2, prefer("a", "b", "ben", margin=2.0))]
    assert settled([*votes, at(3, prefer("b", "a", "cy"))], "majority") == [prefer("a", "b", None, margin=1.5)]
    assert settled([votes[0], at(3, prefer("b", "a", "cy"))], "majority")[0].tie
    thumbs = [at(1, Thumb(CAT, "a", True, annotator=name)) for name in ("ann", "ben")]
    against = [at(2, Thumb(CAT, "a", False, annotator=name)) for name in ("cy", "di")]
    assert settled([*thumbs, against[0]], "majority") == [Thumb(CAT, "a", True)]
    assert settled([*thumbs, *against], "majority") == []
    scores = [at(i, Rating(CAT, "a", float(score), annotator=str(i))) for i, score in enumerate((1, 2, 9))]
    assert settled(scores, "majority") == [Rating(CAT, "a", 2.0)]


def test_mean_weighs_by_confidence() -> None:
    scores = [at(1, Rating(CAT, "a", 1.0, 1.0, "ann")), at(2, Rating(CAT, "a", 5.0, 3.0, "ben"))]
    assert settled(scores, "mean") == [Rating(CAT, "a", 4.0, 2.0)]
    votes = [at(1, prefer("a", "b", "ann")), at(2, prefer("a", "b", "ben")), at(3, prefer("b", "a", "cy"))]
    (judged,) = settled([*votes, at(4, prefer("b", "a", "di", tie=True))], "mean")
    assert (judged.chosen, judged.tie, judged.confidence) == ("a", False, 0.25)
    assert settled(votes[::2], "mean")[0].tie


def test_single_judgement_stays_what_it_is_under_every_rule() -> None:
    record = at(1, prefer("a", "b", "ann", confidence=0.3, margin=2.0))
    rules: tuple[Rule, ...] = ("all", "latest", "majority", "mean")
    for rule in rules:
        assert resolve([record], rule) == [record]
