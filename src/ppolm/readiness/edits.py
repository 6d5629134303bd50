"""Trivial edits that do not improve an answer, and how they change its score: what a policy would exploit first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ppolm.measures.intervals import Clusters
from ppolm.readiness.accuracy import Array, Estimate, estimate

PADDING = " That is really all there is to say about it, more or less."
"""A sentence without content that fits after any answer."""

MOVED = 1e-3
"""Smaller changes, in standard deviations, do not count: how a batch is padded changes the last digits."""

SENTENCE = re.compile(r"[^.!?。！？\n]*[^.!?。！？\s][.!?。！？]*\s*$")
"""The last sentence of a text, or the last line."""


def trailing_space(text: str) -> str:
    """Append a space."""
    return f"{text} "


def repeated_sentence(text: str) -> str:
    """Repeat the last sentence."""
    last = SENTENCE.search(text)
    return f"{text.rstrip()} {(last[0] if last else text).strip()}"


def padding_words(text: str) -> str:
    """Append a sentence without content."""
    return f"{text.rstrip()}{PADDING}"


EDITS: dict[str, Callable[[str], str]] = {
    "trailing space": trailing_space,
    "repeated sentence": repeated_sentence,
    "padding words": padding_words,
}

INVISIBLE = ("trailing space",)
"""Edits that nobody can see, which should not change the score at all. The others may lower it."""


@dataclass(frozen=True)
class EditReport:
    """The effect of an edit on the scores."""

    change: Estimate
    """Mean of s(edited) − s(answer), in standard deviations of the scores."""
    size: float
    """Mean of |s(edited) − s(answer)|, in the same unit."""
    gained: float
    """Fraction of the answers that score higher with the edit."""
    flipped: float | None
    """Fraction of the pairs in which the lower-scored answer, edited, overtakes the other. None without pairs."""


def edit_report(
    before: Array, after: Array, prompts: Clusters, std: float, pairs: Sequence[tuple[int, int]] = ()
) -> EditReport:
    """Compare the scores [A] of answers before and after an edit; ``pairs`` are indices of answers to one prompt."""
    change = (after - before) / (std or 1.0)  # if all scores are equal, the change is not scaled
    mean = estimate(change, prompts)
    assert mean is not None
    return EditReport(
        change=mean,
        size=float(np.abs(change).mean()),
        gained=float((change > MOVED).mean()),
        flipped=_flipped(before, after, pairs),
    )


def _flipped(before: Array, after: Array, pairs: Sequence[tuple[int, int]]) -> float | None:
    ordered = [pair if before[pair[0]] < before[pair[1]] else pair[::-1] for pair in pairs]
    differing = [(low, high) for low, high in ordered if before[low] != before[high]]
    if not differing:
        return None
    return float(np.mean([after[low] > before[high] for low, high in differing]))
