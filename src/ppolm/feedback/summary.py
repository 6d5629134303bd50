"""What a store holds: counts, repetitions, contradictions, and how far people agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from ppolm.feedback.agreement import Metric, cohen_kappa, krippendorff_alpha
from ppolm.feedback.agreement_intervals import alpha_interval, kappa_interval
from ppolm.feedback.record import KINDS, Kind, Record
from ppolm.feedback.resolve import by_item, latest
from ppolm.measures.intervals import Interval

METRICS: dict[Kind, Metric] = {"preferences": "nominal", "scores": "interval", "thumbs": "nominal"}
MIN_OVERLAP = 2
"""Items judged by two annotators below which agreement says nothing."""


@dataclass(frozen=True)
class PairAgreement:
    """Cohen's kappa of two annotators over the items that both judged."""

    annotators: tuple[str, str]
    items: int
    kappa: float | None
    interval: Interval | None = None
    """95 %, by item; None where a single item decides whether kappa is defined."""


@dataclass(frozen=True)
class KindSummary:
    """Judgements of one kind."""

    judgements: int
    items: int
    """Different responses that were judged, or pairs of them."""
    duplicates: int
    """Judgements in which an annotator said of an item what they had said of it before."""
    changed: int
    """Items on which an annotator said different things at different times."""
    conflicts: int
    """Items on which annotators differ, by the latest word of each."""
    annotators: dict[str, int]
    """Judgements of each annotator; "" for those without a name."""
    overlap: int
    """Items that two annotators or more judged."""
    metric: Metric
    alpha: float | None
    """Krippendorff's alpha over those."""
    alpha_interval: Interval | None
    """95 %, by item."""
    pairs: list[PairAgreement]


def summarise(records: Sequence[Record]) -> dict[Kind, KindSummary]:
    """A summary per kind."""
    return {kind: _summarise([record for record in records if record.kind == kind], kind) for kind in KINDS.values()}


def _summarise(records: list[Record], kind: Kind) -> KindSummary:
    asked_once = [record for record in records if not record.details.repetition]
    said = Counter((record.item, record.judge, record.verdict) for record in asked_once)
    opinions = Counter((item, judge) for item, judge, _ in said)
    newest = latest(asked_once)
    groups = by_item(newest)
    shared = [[record.verdict for record in group] for group in groups if len(group) > 1]
    enough = len(shared) >= MIN_OVERLAP
    return KindSummary(
        judgements=len(records),
        items=len(groups),
        duplicates=len(asked_once) - len(said),
        changed=len({item for (item, _), count in opinions.items() if count > 1}),
        conflicts=sum(len(set(verdicts)) > 1 for verdicts in shared),
        annotators=dict(sorted(Counter(record.judgement.annotator or "" for record in records).items())),
        overlap=len(shared),
        metric=METRICS[kind],
        alpha=krippendorff_alpha(shared, METRICS[kind]) if enough else None,
        alpha_interval=alpha_interval(shared, METRICS[kind]) if enough else None,
        pairs=_pairs(newest, METRICS[kind]),
    )


def _pairs(newest: Sequence[Record], metric: Metric) -> list[PairAgreement]:
    """Every two named annotators who have an item in common."""
    said: dict[str, dict[tuple[str, ...], float]] = {}
    for record in newest:
        if record.judgement.annotator is not None:
            said.setdefault(record.judgement.annotator, {})[record.item] = record.verdict
    found = []
    for one, other in combinations(sorted(said), 2):
        both = [item for item in said[one] if item in said[other]]
        if both:
            first, second = ([said[name][item] for item in both] for name in (one, other))
            kappa = cohen_kappa(first, second, metric) if len(both) >= MIN_OVERLAP else None
            interval = None if kappa is None else kappa_interval(first, second, metric)
            found.append(PairAgreement((one, other), len(both), kappa, interval))
    return found
