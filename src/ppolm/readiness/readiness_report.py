"""The readiness report of a reward model, as measured on held-out judgements."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from ppolm.readiness.accuracy import Calibration, Distribution, Estimate, Ties
from ppolm.readiness.correlations import RatingReport, ThumbReport
from ppolm.readiness.edits import EditReport
from ppolm.readiness.length import LengthReport
from ppolm.readiness.readiness_verdict import Reason, Status


@dataclass(frozen=True)
class Mistake:
    """A pair on which the model disagrees with people."""

    prompt: str
    chosen: str
    rejected: str
    chosen_score: float
    rejected_score: float
    confidence: float
    """The model's probability that the rejected answer wins."""
    annotator: str | None


@dataclass(frozen=True)
class Readiness:
    """Whether a reward model is ready for PPO, and the evidence; None where there are no rows to measure it on."""

    verdict: Status
    """ready, weak or not ready."""
    reasons: tuple[Reason, ...]
    """What speaks against it, the worst first; for a ready model, its skill."""
    rows: dict[str, int]
    """Number of held-out rows of each kind (pairs, ties, scores, thumbs), and of different prompts."""
    chose_weights: bool
    """Whether these rows also decided which weights were kept, which makes the numbers slightly optimistic."""
    accuracy: Estimate | None
    """Share of held-out pairs in which the preferred answer has the higher score."""
    calibration: Calibration | None
    """Whether differences of scores say how likely a preference is."""
    length: LengthReport | None
    """How much of it a rule that only counts characters would get right."""
    ties: Ties | None
    """Differences of scores where people saw none."""
    ratings: RatingReport | None
    """Agreement with scores that people gave."""
    thumbs: ThumbReport | None
    """Agreement with thumbs."""
    agreement: dict[str, Estimate]
    """Accuracy on the pairs of each named annotator."""
    distribution: Distribution
    """The scores themselves."""
    edits: dict[str, EditReport]
    """What changes that should not matter do to the score, by name."""
    mistakes: tuple[Mistake, ...]
    """Pairs that it gets wrong by most."""

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain values for JSON; infinite bounds become None."""
        return dict(_finite(dataclasses.asdict(self)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
