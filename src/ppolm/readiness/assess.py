"""Measuring a reward model on held-out judgements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppolm.data.examples import Judgement, Preference, Rating, Thumb
from ppolm.data.prompts import preview
from ppolm.data.same_text import prompt_numbers
from ppolm.errors import DataError, RewardError
from ppolm.measures.intervals import Rows
from ppolm.measures.words import words
from ppolm.readiness.accuracy import (
    Array,
    Estimate,
    calibration,
    confidence,
    correct,
    distribution,
    share_estimate,
    ties,
)
from ppolm.readiness.correlations import RatingReport, ThumbReport, rating_report, thumb_report
from ppolm.readiness.edits import EDITS, EditReport, edit_report
from ppolm.readiness.length import length_report
from ppolm.readiness.readiness_report import Mistake, Readiness
from ppolm.readiness.readiness_verdict import Evidence, judge_readiness

Scorer = Callable[[Sequence[Any], Sequence[str]], Sequence[float]]
"""Scores responses to prompts, on a scale where σ(s₁ − s₂) is the probability that the first wins."""

EDITED_ROWS = 128
"""Maximum number of rows whose answers are scored with every edit; twice as many narrow the interval by a third."""

PROMPT_SHOWN = 300
"""Characters of the prompt that are shown with a mistake."""


@dataclass(frozen=True)
class Scored:
    """Held-out rows with the model's scores of their answers."""

    pairs: list[Preference]
    chosen: Array
    rejected: Array
    ratings: list[Rating]
    rating_scores: Array
    thumbs: list[Thumb]
    thumb_scores: Array

    @property
    def decided(self) -> Rows:
        """Indices of the pairs that people did not call equal."""
        return np.flatnonzero([not pair.tie for pair in self.pairs])

    @property
    def difference(self) -> Array:
        """s_chosen − s_rejected of every pair."""
        return self.chosen - self.rejected

    @property
    def everything(self) -> Array:
        """All scores."""
        return np.concatenate([self.chosen, self.rejected, self.rating_scores, self.thumb_scores])


def assess(rows: Sequence[Judgement], score: Scorer, mistakes: int = 5, chose_weights: bool = False) -> Readiness:
    """Measure a reward on judgements that it was not trained on, and decide whether PPO should trust it.

    ``chose_weights``: these rows also decided which weights were kept in training, which the report then mentions.
    """
    if not rows:
        raise DataError("There are no held-out rows, so the reward model cannot be measured. Hold some out.")
    scored = score_rows(rows, score)
    evidence = _evidence(rows, scored, score)
    verdict, reasons = judge_readiness(evidence)
    return Readiness(
        verdict=verdict,
        reasons=reasons,
        rows=_row_counts(rows, scored),
        chose_weights=chose_weights,
        accuracy=evidence.accuracy,
        calibration=evidence.calibration,
        length=evidence.length,
        ties=ties(np.delete(scored.difference, scored.decided), scored.difference[scored.decided]),
        ratings=evidence.ratings,
        thumbs=evidence.thumbs,
        agreement=dict(evidence.agreement or {}),
        distribution=distribution(_score_groups(scored)),
        edits=dict(evidence.edits or {}),
        mistakes=_worst(scored, mistakes),
    )


def scores_of(score: Scorer, prompts: Sequence[Any], responses: Sequence[str]) -> Array:
    """A finite score for each response, or an error."""
    given = np.asarray(score(prompts, responses), dtype=np.float64)
    if given.shape != (len(responses),):
        raise RewardError(
            f"The reward gave scores of shape {given.shape} for {len(responses)} responses, expected one per response."
        )
    bad = np.flatnonzero(~np.isfinite(given))
    if len(bad):
        raise RewardError(
            f"The reward gave {given[bad[0]]} for the response {preview(responses[bad[0]])} to the prompt "
            f"{preview(prompts[bad[0]])}, expected a finite number. Train it again with a lower learning rate."
        )
    return given


def score_rows(rows: Sequence[Judgement], score: Scorer) -> Scored:
    """Score all answers of all rows at once."""
    texts = [(row.prompt.content, answer) for row in rows for answer in row.answers.values()]
    flat = scores_of(score, [prompt for prompt, _ in texts], [answer for _, answer in texts])
    starts = np.cumsum([0, *(len(row.answers) for row in rows)])[:-1]

    def where(kind: type) -> Rows:
        return starts[[isinstance(row, kind) for row in rows]]

    first = where(Preference)
    return Scored(
        pairs=[row for row in rows if isinstance(row, Preference)],
        chosen=flat[first],
        rejected=flat[first + 1],
        ratings=[row for row in rows if isinstance(row, Rating)],
        rating_scores=flat[where(Rating)],
        thumbs=[row for row in rows if isinstance(row, Thumb)],
        thumb_scores=flat[where(Thumb)],
    )


def _evidence(rows: Sequence[Judgement], scored: Scored, score: Scorer) -> Evidence:
    decided = [scored.pairs[i] for i in scored.decided]
    difference, prompts = scored.difference[scored.decided], _prompts(decided)
    chosen, rejected = [pair.chosen for pair in decided], [pair.rejected for pair in decided]
    return Evidence(
        accuracy=share_estimate(correct(difference), prompts),
        length=length_report(chosen, rejected, difference, prompts) if decided else None,
        calibration=calibration(difference) if decided else None,
        ratings=_ratings(scored),
        thumbs=_thumbs(scored),
        edits=_edits(rows, score, float(scored.everything.std())),
        agreement=_agreement(decided, difference, prompts),
    )


def _row_counts(rows: Sequence[Judgement], scored: Scored) -> dict[str, int]:
    return {
        "pairs": len(scored.decided),
        "ties": len(scored.pairs) - len(scored.decided),
        "scores": len(scored.ratings),
        "thumbs": len(scored.thumbs),
        "prompts": len(set(_prompts(rows).tolist())),
    }


def _ratings(scored: Scored) -> RatingReport | None:
    if not scored.ratings:
        return None
    human = np.array([row.score for row in scored.ratings], float)
    return rating_report(scored.rating_scores, human, _lengths(scored.ratings), _prompts(scored.ratings))


def _thumbs(scored: Scored) -> ThumbReport | None:
    if not scored.thumbs:
        return None
    labels = np.array([row.label for row in scored.thumbs], float)
    return thumb_report(scored.thumb_scores, labels, _lengths(scored.thumbs), _prompts(scored.thumbs))


def _lengths(rows: Sequence[Rating | Thumb]) -> Array:
    return np.array([len(words(row.completion)) for row in rows], float)


def _prompts(rows: Sequence[Judgement]) -> Rows:
    return prompt_numbers([row.prompt.content for row in rows])


def _agreement(pairs: Sequence[Preference], difference: Array, prompts: Rows) -> dict[str, Estimate]:
    """Accuracy by annotator, most pairs first."""
    names = np.array([pair.annotator or "" for pair in pairs], dtype=object)
    found = {}
    for name in sorted({pair.annotator for pair in pairs if pair.annotator}):
        measured = share_estimate(correct(difference[names == name]), prompts[names == name])
        if measured:
            found[name] = measured
    return dict(sorted(found.items(), key=lambda item: -item[1].rows))


def _edits(rows: Sequence[Judgement], score: Scorer, std: float) -> dict[str, EditReport]:
    """Reports of every edit on rows spread over the data, since a file may be sorted."""
    count = min(len(rows), EDITED_ROWS)
    some = [rows[i] for i in np.linspace(0, len(rows) - 1, count).astype(int)]
    prompts = [row.prompt.content for row in some for _ in row.answers]
    texts = [answer for row in some for answer in row.answers.values()]
    starts = np.cumsum([0, *(len(row.answers) for row in some)])[:-1].tolist()
    pairs = [(at, at + 1) for at, row in zip(starts, some, strict=True) if isinstance(row, Preference)]
    versions = [texts, *([edit(text) for text in texts] for edit in EDITS.values())]
    # In one call, so that an answer and its edited versions are scored by the reward in the same state.
    scores = scores_of(score, prompts * len(versions), [text for version in versions for text in version])
    before, *after = scores.reshape(len(versions), len(texts))
    numbers = prompt_numbers(prompts)
    return {name: edit_report(before, edited, numbers, std, pairs) for name, edited in zip(EDITS, after, strict=True)}


def _score_groups(scored: Scored) -> dict[str, Array]:
    decided = scored.decided
    up = np.array([row.label for row in scored.thumbs], dtype=bool)
    groups = {
        "chosen": scored.chosen[decided],
        "rejected": scored.rejected[decided],
        "tied": np.concatenate([np.delete(scored.chosen, decided), np.delete(scored.rejected, decided)]),
        "thumbs up": scored.thumb_scores[up],
        "thumbs down": scored.thumb_scores[~up],
        "scored": scored.rating_scores,
    }
    return {name: scores for name, scores in groups.items() if len(scores)}


def _worst(scored: Scored, count: int) -> tuple[Mistake, ...]:
    """The pairs in which the rejected answer scores furthest above the chosen one."""
    difference = scored.difference
    wrong = [i for i in scored.decided if difference[i] < 0]
    return tuple(
        Mistake(
            prompt=preview(scored.pairs[i].prompt.content, PROMPT_SHOWN),
            chosen=scored.pairs[i].chosen,
            rejected=scored.pairs[i].rejected,
            chosen_score=float(scored.chosen[i]),
            rejected_score=float(scored.rejected[i]),
            confidence=float(confidence(difference[i])),
            annotator=scored.pairs[i].annotator,
        )
        for i in sorted(wrong, key=lambda i: difference[i])[:count]
    )
