"""Judgements that disagree most with a reward's scores of the same responses. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ppolm.feedback.record import REPEAT, Record, Source

FEWEST = 5
"""Judgements of a kind below which there is no scale to compare scores on."""


@dataclass(frozen=True)
class Gap:
    """A judgement, and what the reward says of its responses."""

    record: Record
    scores: tuple[float, ...]
    """Of the response; of a comparison, of the chosen and of the rejected one."""
    gap: float
    """Deviations of the scores by which the reward says otherwise; 0 or less: it agrees."""


def reward_gaps(records: Sequence[Record], score: Callable[[Source], float | None]) -> list[Gap]:
    """All judgements whose responses have scores, those that the reward contradicts most first.

    Comparisons: the rejected response's score less the chosen one's, over the deviation σ of all scores. Scores and
    thumbs: |z − z'| less 1, of the standardised verdict z and score z' of each kind.
    """
    known = []
    for record in records:
        sources = (record.source, record.rejected_source)[: len(record.response_ids)]
        scores = [found for source in sources if (found := score(source)) is not None]
        if record.details.repetition != REPEAT and len(scores) == len(sources):
            known.append((record, tuple(scores)))
    deviation = _deviation([one for _, scores in known for one in scores])
    gaps = [
        Gap(record, scores, (scores[1] - scores[0]) / deviation)
        for record, scores in known
        if record.kind == "preferences" and record.verdict != 0
    ]
    for kind in ("scores", "thumbs"):
        gaps += _standardised([(record, scores) for record, scores in known if record.kind == kind])
    return sorted(gaps, key=lambda gap: (-gap.gap, gap.record.id))


def _standardised(known: Sequence[tuple[Record, tuple[float, ...]]]) -> list[Gap]:
    if len(known) < FEWEST:
        return []
    said = _standard([record.verdict for record, _ in known])
    scored = _standard([scores[0] for _, scores in known])
    return [
        Gap(record, scores, abs(one - other) - 1.0)
        for (record, scores), one, other in zip(known, said, scored, strict=True)
    ]


def _standard(values: Sequence[float]) -> list[float]:
    mean, deviation = statistics.fmean(values), _deviation(values)
    return [(value - mean) / deviation for value in values]


def _deviation(values: Sequence[float]) -> float:
    return (statistics.pstdev(values) if len(values) > 1 else 0.0) or 1.0
