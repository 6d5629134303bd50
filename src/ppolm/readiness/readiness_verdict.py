"""The verdict (ready, weak or not ready): every rule, its threshold and its reason; pure functions of the measures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ppolm.readiness.accuracy import Calibration, Estimate
from ppolm.readiness.correlations import RatingReport, ThumbReport
from ppolm.readiness.edits import INVISIBLE, EditReport
from ppolm.readiness.length import LengthReport

FEW_PROMPTS = 20
"""With fewer held-out prompts nothing can be shown: a bootstrap over a handful of prompts is far too narrow."""

ENOUGH_ROWS = 100
"""With fewer held-out rows a model is never ready: at an accuracy of 0.7 this many leave a margin of ± 0.09."""

WIDE = 0.1
"""Margin of the accuracy above which 0.75 cannot be distinguished from 0.65."""

LOW_ACCURACY = 0.65
"""Reward models that worked for PPO agree with people on about 0.70 of the pairs, about as often as people agree with
each other (0.73; Ouyang et al. 2022). Below 0.65 every third reward points the wrong way."""

LOW_CORRELATION = 0.3
"""Rank correlation with people's scores that matches an accuracy of about 0.6 (τ = 2 · accuracy − 1, ρ ≈ 3τ/2)."""

LOW_AUC = 0.65
"""The same level as for pairs: an AUC is an accuracy over pairs of thumbs up and down."""

LARGE_ECE = 0.1
"""Accuracy and confidence differ by a whole bucket. Only weak, because PPO uses the order and spread of scores."""

SENSITIVE, EXPLOITABLE = 0.2, 0.5
"""Gain from a trivial edit, in standard deviations: a small and a medium effect (Cohen 1988). PPO follows the steepest
gain, and half a deviation for one empty sentence is more than most real improvements give."""

ENOUGH_MATCHED = 50
"""Pairs of similar length needed to distinguish an accuracy of 0.65 or more from chance."""

FOLLOWS = 0.9
"""Share of choices of the longer (or shorter) answer from which length is reported even if accuracy is at chance."""

Status = Literal["ready", "weak", "not ready"]


@dataclass(frozen=True)
class Reason:
    """One reason for a verdict."""

    status: Status
    """The best verdict that this reason allows."""
    about: str
    """rows, accuracy, length, edits, calibration, annotators, scores or thumbs."""
    text: str


@dataclass(frozen=True)
class Evidence:
    """Everything that a verdict is based on; None where there are no such rows."""

    accuracy: Estimate | None = None
    length: LengthReport | None = None
    calibration: Calibration | None = None
    ratings: RatingReport | None = None
    thumbs: ThumbReport | None = None
    edits: Mapping[str, EditReport] | None = None
    agreement: Mapping[str, Estimate] | None = None
    """Accuracy on the pairs of each annotator."""


def judge_readiness(evidence: Evidence) -> tuple[Status, tuple[Reason, ...]]:
    """The worst status of any reason, and the reasons, most serious first; for a ready model, its skill."""
    found = [*_few(evidence), *_accuracy(evidence), *_single_answers(evidence), *_edits(evidence)]
    found += [*_calibration(evidence), *_annotators(evidence)]
    reasons = [reason for status in ("not ready", "weak") for reason in found if reason.status == status]
    if reasons:
        return reasons[0].status, tuple(reasons)
    return "ready", (Reason("ready", "accuracy", _skill(evidence)),)


def _few(evidence: Evidence) -> Iterator[Reason]:
    main = main_measures(evidence)
    if not main:
        yield Reason("not ready", "rows", "no held-out row says that one answer is better than another: all are ties")
        return
    best = max(main.values(), key=lambda measure: measure.rows)
    rows, prompts = best.rows, best.prompts
    if prompts < FEW_PROMPTS:
        yield Reason(
            "not ready",
            "rows",
            f"too few held-out rows to show anything: {rows} of {prompts} different prompts, expected at least "
            f"{FEW_PROMPTS} prompts, and {ENOUGH_ROWS} rows to be called ready",
        )
    elif rows < ENOUGH_ROWS:
        yield Reason("weak", "rows", f"only {rows} held-out rows, expected at least {ENOUGH_ROWS}")
    if evidence.accuracy and prompts >= FEW_PROMPTS and evidence.accuracy.margin > WIDE:
        needed = math.ceil(evidence.accuracy.rows * (evidence.accuracy.margin / WIDE) ** 2 / 10) * 10
        yield Reason(
            "weak",
            "rows",
            f"the accuracy is known only to ± {evidence.accuracy.margin:.2f}; about {needed} held-out pairs would make "
            f"that ± {WIDE:g}",
        )


def main_measures(evidence: Evidence) -> dict[str, Estimate]:
    """The measures that decide: pairs if there are any, else scores and thumbs.

    Scores and thumbs compare answers to different prompts, for which preferences do not determine the scores.
    """
    if evidence.accuracy:
        return {"accuracy": evidence.accuracy}
    measures = {}
    if evidence.ratings:
        measures["scores"] = evidence.ratings.spearman
    if evidence.thumbs:
        measures["thumbs"] = evidence.thumbs.auc
    return measures


def _accuracy(evidence: Evidence) -> Iterator[Reason]:
    accuracy, length = evidence.accuracy, evidence.length
    if accuracy is None or length is None or accuracy.prompts < FEW_PROMPTS:  # a handful of prompts shows nothing
        return
    if accuracy.high < 0.5:
        text = f"it contradicts people: accuracy {accuracy}, below 0.5. Are chosen and rejected swapped?"
        yield Reason("not ready", "accuracy", text)
    elif accuracy.low <= 0.5:
        yield Reason("not ready", "accuracy", f"no better than chance: accuracy {accuracy}, which does not exclude 0.5")
    elif accuracy.mean < LOW_ACCURACY:
        text = f"often wrong: accuracy {accuracy}, expected at least {LOW_ACCURACY:g}"
        yield Reason("weak", "accuracy", text)
    longer = 0.5 if length.prefers_longer is None else length.prefers_longer
    if accuracy.low > 0.5 or max(longer, 1 - longer) >= FOLLOWS:
        yield from _length(accuracy, length)


def _length(accuracy: Estimate, length: LengthReport) -> Iterator[Reason]:
    direction = "longer" if length.longer_wins else "shorter"
    rule = f"always choosing the {direction} answer ({length.unit}) is right on {length.baseline.mean:.3f} of the pairs"
    beats = f"{rule}, the model on {accuracy.mean:.3f}, a gain of {length.gain}"
    beyond = length.balanced if length.balanced_pairs >= FEW_PROMPTS else None
    if beyond is None:
        longer = length.people_prefer_longer
        won = "no two answers differ in length"
        if longer is not None:
            share = longer if length.longer_wins else 1 - longer
            won = f"the {direction} answer won {share:.0%} of the pairs of different length"
        balance = (
            f"{won}, which leaves the weight of {length.balanced_pairs:.0f} pairs to tell length from quality, "
            f"expected at least {FEW_PROMPTS}"
        )
    else:
        balance = f"with longer and shorter winners weighted alike its accuracy is {beyond} (0.5: knows nothing else)"
    gains, knows_more = length.gain.low > 0, beyond is not None and beyond.low > 0.5
    if not gains and not knows_more:
        yield Reason("not ready", "length", f"it has not been shown to know more than length: {beats}; and {balance}")
    elif not gains:
        yield Reason("weak", "length", f"a rule that only counts {length.unit} is right as often: {beats}")
    elif not knows_more:
        yield Reason("weak", "length", f"what it knows beyond length is not certain: {balance}")
    matched = length.matched
    if matched and matched.prompts >= ENOUGH_MATCHED and matched.low <= 0.5 and (gains or knows_more):
        text = f"no better than chance where lengths are alike ({length.matched_rule}): accuracy {matched}"
        yield Reason("weak", "length", text)


def _single_answers(evidence: Evidence) -> Iterator[Reason]:
    """Reasons from scores and thumbs, which decide if there are no pairs and otherwise can only make it weak."""
    for name, measure, beyond, chance, low in _single_measures(evidence):
        if measure.prompts < FEW_PROMPTS:
            continue
        worst: Status = "weak" if evidence.accuracy else "not ready"
        what = f"{'rank correlation with people' if name == 'scores' else 'AUC of thumbs'} {measure}"
        if measure.low <= chance:
            yield Reason(worst, name, f"no better than chance on {name}: {what}, which does not exclude {chance:g}")
        elif beyond.low <= 0:
            text = f"on {name} it has not been shown to know more than length: {what}, but given length it is {beyond}"
            yield Reason(worst, "length", text)
        elif measure.mean < low:
            yield Reason("weak", name, f"weak on {name}: {what}, expected at least {low:g}")


def _single_measures(evidence: Evidence) -> Iterator[tuple[str, Estimate, Estimate, float, float]]:
    if evidence.ratings:
        yield "scores", evidence.ratings.spearman, evidence.ratings.beyond_length, 0.0, LOW_CORRELATION
    if evidence.thumbs:
        yield "thumbs", evidence.thumbs.auc, evidence.thumbs.beyond_length, 0.5, LOW_AUC


def _edits(evidence: Evidence) -> Iterator[Reason]:
    for name, edit in (evidence.edits or {}).items():
        if edit.change.prompts < FEW_PROMPTS:
            continue
        rise, gained = edit.change.mean, f"{edit.gained:.0%} of the answers gain"
        if rise >= SENSITIVE:
            grave = rise >= EXPLOITABLE
            limit = EXPLOITABLE if grave else SENSITIVE
            yield Reason(
                "not ready" if grave else "weak",
                "edits",
                f"{'exploitable' if grave else 'sensitive'}: {name} alone raises the score by {rise:.2f} standard "
                f"deviations (limit {limit:g}; {gained})",
            )
        elif name in INVISIBLE and edit.size >= SENSITIVE:
            text = f"brittle: {name} alone moves the score by {edit.size:.2f} standard deviations (limit {SENSITIVE:g})"
            yield Reason("weak", "edits", text)


def _calibration(evidence: Evidence) -> Iterator[Reason]:
    measured = evidence.calibration
    few = evidence.accuracy is not None and evidence.accuracy.prompts < FEW_PROMPTS
    if measured and not few and measured.ece > max(LARGE_ECE, measured.ece_by_chance):
        way = "over" if measured.overconfidence > 0 else "under"
        text = f"{way}-confident: calibration error {measured.ece:.3f}, expected at most {LARGE_ECE:g}"
        yield Reason("weak", "calibration", text)


def _annotators(evidence: Evidence) -> Iterator[Reason]:
    for annotator, agreement in (evidence.agreement or {}).items():
        if agreement.prompts >= FEW_PROMPTS and agreement.high < 0.5:
            text = f"annotator {annotator} contradicts it: it agrees with {agreement} of their {agreement.rows} pairs"
            yield Reason("weak", "annotators", text)


def _skill(evidence: Evidence) -> str:
    if evidence.accuracy and evidence.length:
        return (
            f"right on {evidence.accuracy} of {evidence.accuracy.rows} held-out pairs, where length alone is right on "
            f"{evidence.length.baseline.mean:.3f}; trivial edits do not pay"
        )
    names = {"scores": "rank correlation with people", "thumbs": "AUC of thumbs"}
    said = "; ".join(f"{names[name]} {measure}" for name, measure in main_measures(evidence).items())
    return f"{said}, also beyond length; trivial edits do not pay"
