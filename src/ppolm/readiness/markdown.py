"""The text of readiness.md, and the summary for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from ppolm.readiness.accuracy import Estimate
from ppolm.readiness.readiness_report import Mistake, Readiness
from ppolm.readiness.readiness_verdict import FEW_PROMPTS

ANNOTATORS_SHOWN = 20
CHOSE_WEIGHTS = (
    "These rows were also used to choose the weights, so the numbers are slightly optimistic; give others with "
    "--test-data for a stricter test."
)
TEXT_SHOWN = 2000
"""Characters of an answer shown on the page; the JSON file has the whole text."""


def summary_lines(readiness: Readiness) -> Iterator[str]:
    """The main numbers, then the verdict and its reasons."""
    yield f"reward model on {_counts(readiness)}"
    for name, measure in islice(measures(readiness), 1 if few_prompts(readiness) else None):
        yield f"  {name:<42} {measure}  ({measure.rows} rows)"
    if few_prompts(readiness):
        yield f"  With {readiness.rows['prompts']} different prompts little is known; the report has every figure."
    elif readiness.calibration:
        yield f"  {'calibration error (ECE)':<42} {readiness.calibration.ece:.3f}"
    for name, edit in () if few_prompts(readiness) else readiness.edits.items():
        flips = "" if edit.flipped is None else f", overtakes in {edit.flipped:.0%} of the pairs"
        yield f"  {'score change by ' + name:<42} {edit.change.mean:+.2f} sd  ({edit.gained:.0%} gain{flips})"
    if readiness.chose_weights:
        yield f"  {CHOSE_WEIGHTS}"
    yield f"verdict: {readiness.verdict}"
    for reason in readiness.reasons:
        yield f"  - {reason.text}"


def few_prompts(readiness: Readiness) -> bool:
    """Whether there are too few prompts for most figures to be meaningful."""
    return readiness.rows["prompts"] < FEW_PROMPTS


def measures(readiness: Readiness) -> Iterator[tuple[str, Estimate]]:
    """Every available measure that has an interval, by name."""
    length = readiness.length
    if readiness.accuracy and length:
        direction = "longer" if length.longer_wins else "shorter"
        yield "accuracy", readiness.accuracy
        yield f"length baseline ({direction} wins, {length.unit})", length.baseline
        yield "gain over the length baseline", length.gain
        named = {
            "accuracy, length-balanced": length.balanced,
            "accuracy, like lengths": length.matched,
            "accuracy, the longer answer won": length.longer_won,
            "accuracy, the shorter answer won": length.shorter_won,
        }
        yield from ((name, measure) for name, measure in named.items() if measure)
    if readiness.ratings:
        yield "scores: rank correlation (Spearman)", readiness.ratings.spearman
        yield "scores: correlation (Pearson)", readiness.ratings.pearson
        yield "scores: rank correlation given length", readiness.ratings.beyond_length
    if readiness.thumbs:
        yield "thumbs: AUC", readiness.thumbs.auc
        yield "thumbs: rank correlation given length", readiness.thumbs.beyond_length


def markdown(readiness: Readiness) -> str:
    """The whole page."""
    lines = ["# Readiness of the reward model", "", f"**Verdict: {readiness.verdict}**", ""]
    lines += [f"- {reason.text}" for reason in readiness.reasons]
    lines += ["", f"Measured on {_counts(readiness)}. Brackets hold 95 % intervals, by prompt.", ""]
    lines += [CHOSE_WEIGHTS, ""] if readiness.chose_weights else []
    lines += ["![Calibration, accuracies, scores and trivial edits](readiness.png)", ""]
    rows = [(name, str(measure), measure.rows, measure.prompts) for name, measure in measures(readiness)]
    lines += _table(("measure", "value", "rows", "prompts"), rows)
    sections = (_length, _calibration, _ties, _agreement, _scores, _edits, _mistakes)
    return "\n".join([*lines, *(line for section in sections for line in section(readiness))]).rstrip() + "\n"


def _counts(readiness: Readiness) -> str:
    rows = readiness.rows
    kinds = {"pairs": "held-out pairs", "ties": "ties", "scores": "scores", "thumbs": "thumbs"}
    said = [f"{rows[kind]} {name}" for kind, name in kinds.items() if rows[kind]]
    return f"{', '.join(said)} of {rows['prompts']} prompts"


def _length(readiness: Readiness) -> Iterator[str]:
    length = readiness.length
    if length is None:
        return
    yield from ("## Length", "")
    if length.prefers_longer is not None and length.people_prefer_longer is not None:
        yield (
            f"Where lengths differ, the model prefers the longer answer in {length.prefers_longer:.0%} of the pairs, "
            f"people in {length.people_prefer_longer:.0%}."
        )
    yield (
        f"Score difference and length difference correlate by {length.correlation:.2f}. "
        f"Like lengths: {length.matched_rule}. The length-balanced accuracy weighs as much as "
        f"{length.balanced_pairs:.0f} pairs. Unit and direction of the baseline are the best on these very pairs, "
        "which flatters the baseline a little, never the model."
    )
    yield ""


def _calibration(readiness: Readiness) -> Iterator[str]:
    measured = readiness.calibration
    if measured is None:
        return
    yield from ("## Calibration", "")
    buckets = [
        (f"{bucket.low:.1f} to {bucket.high:.1f}", bucket.count, _number(bucket.confidence), _number(bucket.accuracy))
        for bucket in measured.buckets
    ]
    yield from _table(("confidence", "pairs", "mean confidence", "accuracy"), buckets)
    yield (
        f"Expected calibration error {measured.ece:.3f}; a calibrated model stays below {measured.ece_by_chance:.3f} "
        f"on 95 % of such samples. Confidence minus accuracy: {measured.overconfidence:+.3f}."
    )
    yield ""


def _ties(readiness: Readiness) -> Iterator[str]:
    tied = readiness.ties
    if tied:
        yield from ("## Ties", "")
        decided = "" if tied.decided_difference is None else f", in decided pairs {tied.decided_difference:.3f}"
        where = f"the {tied.count} pairs that people called equal"
        yield from (f"Mean score difference in {where}: {tied.difference:.3f}{decided}.", "")


def _agreement(readiness: Readiness) -> Iterator[str]:
    if not readiness.agreement:
        return
    yield from ("## Agreement by annotator", "")
    shown = list(readiness.agreement.items())[:ANNOTATORS_SHOWN]
    yield from _table(("annotator", "pairs", "accuracy"), [(name, found.rows, str(found)) for name, found in shown])
    if len(readiness.agreement) > len(shown):
        yield from (f"And {len(readiness.agreement) - len(shown)} more in readiness.json.", "")


def _scores(readiness: Readiness) -> Iterator[str]:
    spreads = readiness.distribution.spreads
    yield from ("## Scores", "")
    quantiles = list(next(iter(spreads.values())).quantiles)
    rows = [
        (name, spread.count, _number(spread.mean), _number(spread.std), *map(_number, spread.quantiles.values()))
        for name, spread in spreads.items()
    ]
    yield from _table(("answers", "count", "mean", "deviation", *quantiles), rows)


def _edits(readiness: Readiness) -> Iterator[str]:
    yield from ("## Trivial edits", "")
    rows = [
        (name, str(edit.change), f"{edit.size:.3f}", f"{edit.gained:.0%}", _share(edit.flipped))
        for name, edit in readiness.edits.items()
    ]
    heads = ("edit", "mean change, in deviations", "mean size", "answers that gain", "lower answer overtakes")
    yield from _table(heads, rows)


def _mistakes(readiness: Readiness) -> Iterator[str]:
    if not readiness.mistakes:
        return
    yield from ("## Worst mistakes", "", "People chose the first answer, the model the second.", "")
    for number, mistake in enumerate(readiness.mistakes, 1):
        yield from _mistake(number, mistake)


def _mistake(number: int, mistake: Mistake) -> Iterator[str]:
    who = f", annotator {_cell(mistake.annotator)}" if mistake.annotator else ""
    yield from (f"**{number}.** {mistake.confidence:.0%} sure of the wrong one{who}. The prompt begins:", "")
    yield from (
        _quote(mistake.prompt),
        "",
        f"chosen, score {mistake.chosen_score:.3f}:",
        "",
        _quote(mistake.chosen),
        "",
    )
    yield from (f"rejected, score {mistake.rejected_score:.3f}:", "", _quote(mistake.rejected), "")


def _quote(text: str) -> str:
    """An indented block, in which nothing is markup; the bar keeps leading spaces and empty lines visible."""
    shown = text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]} ... ({len(text) - TEXT_SHOWN} more characters)"
    return "\n".join(f"    | {line}" for line in shown.splitlines())


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _cell(value: object) -> str:
    """Text that does not break a table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|---|" + "---:|" * (len(heads) - 1)
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"
    yield ""
