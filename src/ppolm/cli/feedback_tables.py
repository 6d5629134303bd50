"""What ``ppolm feedback stats`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ppolm.feedback.record import Kind
from ppolm.feedback.summary import MIN_OVERLAP, KindSummary

COUNTS = ("judgements", "items", "duplicates", "changed", "conflicts")


def number_of(count: int, what: str) -> str:
    """``1 response``, ``2 responses``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def stats_lines(name: str, summary: Mapping[Kind, KindSummary], waiting: int) -> Iterator[str]:
    """The tables, line by line."""
    total = sum(one.judgements for one in summary.values())
    waits = f"{number_of(waiting, 'response')} {'waits' if waiting == 1 else 'wait'} to be judged"
    yield f"{name}: {number_of(total, 'judgement')}; {waits}"
    if not total:
        return
    yield ""
    yield f"{'':14}" + "".join(f"{column:>12}" for column in COUNTS)
    for kind, one in summary.items():
        yield f"{kind:14}" + "".join(f"{getattr(one, column):>12}" for column in COUNTS)
    yield ""
    yield from _annotator_lines(summary)
    yield ""
    for kind, one in summary.items():
        if one.judgements:
            yield from _agreement_lines(kind, one)


def _annotator_lines(summary: Mapping[Kind, KindSummary]) -> Iterator[str]:
    names = sorted({name for one in summary.values() for name in one.annotators})
    width = max(14, *(len(name) + 2 for name in names))
    yield f"{'annotator':{width}}" + "".join(f"{kind:>12}" for kind in summary)
    for name in names:
        yield f"{name or '(unnamed)':{width}}" + "".join(
            f"{one.annotators.get(name, 0):>12}" for one in summary.values()
        )


def _agreement_lines(kind: Kind, one: KindSummary) -> Iterator[str]:
    """Krippendorff's alpha of all annotators, Cohen's kappa of every pair, or why there is none."""
    judged = f"{number_of(one.overlap, 'item')} judged by several annotators"
    if one.overlap < MIN_OVERLAP:
        yield f"agreement on {kind}: too little overlap to say anything ({judged}, at least {MIN_OVERLAP} needed)"
        return
    if one.alpha is None:
        yield f"agreement on {kind}: not defined, everybody gave the same verdict everywhere ({judged})"
    else:
        yield f"agreement on {kind}: Krippendorff's alpha {one.alpha:.3f} ({one.metric}; {judged})"
    weights = ", quadratic weights" if one.metric == "interval" else ""
    for pair in one.pairs:
        if pair.kappa is not None:
            found = f"{pair.kappa:.3f}"
        else:
            found = "too few items" if pair.items < MIN_OVERLAP else "not defined, no verdict differs"
        names, both = " and ".join(pair.annotators), number_of(pair.items, "item")
        yield f"  {names}: Cohen's kappa {found} ({both}{weights})"
