"""What ``ppolm feedback stats`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ppolm.feedback.people import AnnotatorFigures
from ppolm.feedback.record import Kind
from ppolm.feedback.study import Study
from ppolm.feedback.summary import MIN_OVERLAP, KindSummary
from ppolm.feedback.win_rates import WinRate
from ppolm.measures.intervals import Interval

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
    """Krippendorff's alpha of all, Cohen's kappa of every two, or why there is none."""
    judged = f"{number_of(one.overlap, 'item')} judged by several annotators"
    if one.overlap < MIN_OVERLAP:
        yield f"agreement on {kind}: too little overlap to say anything ({judged}, at least {MIN_OVERLAP} needed)"
        return
    if one.alpha is None:
        yield f"agreement on {kind}: not defined, everybody gave the same verdict everywhere ({judged})"
    else:
        alpha = f"{one.alpha:.3f}{_range(one.alpha_interval)}"
        yield f"agreement on {kind}: Krippendorff's alpha {alpha} ({one.metric}; {judged})"
    weights = ", quadratic weights" if one.metric == "interval" else ""
    for pair in one.pairs:
        if pair.kappa is not None:
            found = f"{pair.kappa:.3f}{_range(pair.interval)}"
        else:
            found = "too few items" if pair.items < MIN_OVERLAP else "not defined, no verdict differs"
        names, both = " and ".join(pair.annotators), number_of(pair.items, "item")
        yield f"  {names}: Cohen's kappa {found} ({both}{weights})"


def people_lines(people: Sequence[AnnotatorFigures]) -> Iterator[str]:
    """How each annotator judges, where anything but a count is known."""
    shown = [one for one in people if one.seconds is not None or one.decided or one.repeats or one.golds]
    if not shown:
        return
    width = max(14, *(len(one.annotator) + 2 for one in shown))
    columns = ("self-consistency", "first side chosen", "gold right")
    yield ""
    yield f"{'annotator':{width}}{'seconds':>9}" + "".join(f"{column:>26}" for column in columns)
    for one in shown:
        seconds = "-" if one.seconds is None else f"{one.seconds:.1f}"
        shares = ((one.consistency, one.repeats), (one.first, one.decided), (one.gold, one.golds))
        cells = "".join(f"{_share(share, count):>26}" for share, count in shares)
        yield f"{one.annotator:{width}}{seconds:>9}{cells}"


def win_rate_lines(rates: Sequence[WinRate], studies: Mapping[str, Study]) -> Iterator[str]:
    """A line per study and pair of policies."""
    if rates:
        yield ""
    for one in rates:
        study = studies.get(one.study or "")
        name = f"study {study.name}" if study else f"study {one.study}" if one.study else "no study"
        stands_on = f"{number_of(one.comparisons, 'comparison')} on {number_of(one.prompts, 'prompt')}"
        yield (
            f"{name}: {one.policy} is preferred to {one.opponent} in {one.rate.mean:.1%} "
            f"[{one.rate.low:.1%}, {one.rate.high:.1%}] ({stands_on}, {number_of(one.ties, 'tie')} as half)"
        )
        if study and study.identical:
            yield f"  not asked, because both answers are the same text: {number_of(study.identical, 'pair')}"


def _share(share: Interval | None, count: int) -> str:
    return "-" if share is None else f"{share.mean:.0%} [{share.low:.0%}, {share.high:.0%}] of {count}"


def _range(interval: Interval | None) -> str:
    return "" if interval is None else f" [{interval.low:.3f}, {interval.high:.3f}]"
