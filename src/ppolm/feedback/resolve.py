"""What to make of several judgements of the same thing. Pure functions of records."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from ppolm.data.examples import Judgement, Preference, Rating
from ppolm.feedback.record import REPEAT, Details, Record, digest

Rule = Literal["all", "latest", "majority", "mean"]


def resolve(records: Iterable[Record], rule: Rule) -> list[Record]:
    """Judgements by a rule: ``all`` as they are, the ``latest`` of each annotator, or one per item.

    ``majority``: the verdict most annotators gave (of scores the median). ``mean``: the mean score, or the side that
    the mean vote is on, with its distance from 0 as the confidence. Both start from the latest of each annotator.
    Where votes are even, a comparison becomes a tie and a thumb is left out.
    """
    if rule == "all":
        return list(records)
    newest = latest(records)
    if rule == "latest":
        return newest
    settle = settle_by_majority if rule == "majority" else settle_by_mean
    return [settled for group in by_item(newest) if (settled := _settle(group, settle)) is not None]


def latest(records: Iterable[Record]) -> list[Record]:
    """The newest judgement of each annotator on each item; all of the unnamed ones, whose annotators are unknown.

    Repeats are not among them: they tell how sure an annotator is, and are no second word on the item.
    """
    newest: dict[tuple[object, object], Record] = {}
    for record in sorted(records, key=_age):
        if record.details.repetition != REPEAT:
            newest[record.item, record.judge] = record
    return sorted(newest.values(), key=_age)


def by_item(records: Iterable[Record]) -> list[list[Record]]:
    """Judgements of the same thing together, in the order of its first one."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(record.item, []).append(record)
    return list(groups.values())


def settle_by_majority(group: Sequence[Record]) -> Judgement | None:
    """The most frequent verdict, with the mean confidence of those who gave it; of scores the median."""
    judged = group[-1].judgement
    if isinstance(judged, Rating):
        return replace(
            judged, score=statistics.median(record.verdict for record in group), confidence=_confidence(group)
        )
    (winner, votes), *others = Counter(record.verdict for record in group).most_common()
    even = bool(others) and others[0][1] == votes
    return _even(group) if even else _side(group, winner)


def settle_by_mean(group: Sequence[Record]) -> Judgement | None:
    """Σ c·s / Σ c of scores s with confidences c; of votes v = ±1 (tie: 0) the side of Σ c·v / n, weighted by it."""
    judged = group[-1].judgement
    if isinstance(judged, Rating):
        return replace(judged, score=mean_verdict(group), confidence=_confidence(group))
    total = sum(record.judgement.confidence * record.verdict for record in group)
    if total == 0:
        return _even(group)
    return replace(_side(group, math.copysign(1.0, total)), confidence=abs(total) / len(group))


def mean_verdict(group: Sequence[Record]) -> float:
    """Σ c·v / Σ c over scores, or over thumbs as 1 and -1; the plain mean if nobody is confident at all."""
    return _weighted([record.verdict for record in group], group)


def net_win_share(id_: str, comparisons: Sequence[Record]) -> float:
    """z = Σ c·v / Σ c, with v = 1 where a response won, -1 where it lost or both were bad, 0 for a tie."""

    def vote(record: Record) -> float:
        if record.details.both_bad:
            return -1.0
        return 0.0 if record.verdict == 0 else 1.0 if record.response_ids[0] == id_ else -1.0

    return _weighted([vote(record) for record in comparisons], comparisons)


def _weighted(values: Sequence[float], group: Sequence[Record]) -> float:
    """Σ c·v / Σ c by the confidence of each judgement; the plain mean if nobody is confident at all."""
    confidence = [record.judgement.confidence for record in group]
    if sum(confidence) == 0:
        return statistics.fmean(values)
    return sum(c * value for c, value in zip(confidence, values, strict=True)) / sum(confidence)


def _settle(group: list[Record], settle: Callable[[Sequence[Record]], Judgement | None]) -> Record | None:
    """One record for many; without an annotator if several gave it."""
    if len(group) == 1:
        return group[0]
    judged = settle(group)
    if judged is None:
        return None
    names = {record.judgement.annotator for record in group}
    judged = replace(judged, annotator=names.pop() if len(names) == 1 else None)
    # A record with the same response in front, so that each response keeps its own source.
    basis = next(record for record in reversed(group) if record.judgement.answers == judged.answers)
    studies = {record.details.study for record in group}
    return replace(
        basis,
        judgement=judged,
        id=digest(sorted(record.id for record in group))[:32],
        time=group[-1].time,
        details=Details(study=studies.pop() if len(studies) == 1 else None),
    )


def _age(record: Record) -> tuple[object, str]:
    return record.time, record.id


def _confidence(group: Sequence[Record]) -> float:
    return statistics.fmean(record.judgement.confidence for record in group)


def _side(group: Sequence[Record], winner: float) -> Judgement:
    """The newest judgement with the verdict that won, with the means of those who gave it."""
    agreeing = [record for record in group if record.verdict == winner]
    judged = replace(agreeing[-1].judgement, confidence=_confidence(agreeing))
    if isinstance(judged, Preference):
        margins = [record.judgement.margin for record in agreeing if isinstance(record.judgement, Preference)]
        judged = replace(judged, margin=statistics.fmean(margins))
    return judged


def _even(group: Sequence[Record]) -> Judgement | None:
    """What becomes of votes that balance."""
    judged = group[-1].judgement
    if not isinstance(judged, Preference):
        return None
    return replace(judged, tie=True, margin=0.0, confidence=_confidence(group))
