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
    reasons: tuple[Reason, ...]
    rows: dict[str, int]
    """Number of held-out rows of each kind (pairs, ties, scores, thumbs), and of different prompts."""
    chose_weights: bool
    """Whether these rows also decided which weights were kept, which makes the numbers slightly optimistic."""
    accuracy: Estimate | None
    calibration: Calibration | None
    length: LengthReport | None
    ties: Ties | None
    ratings: RatingReport | None
    thumbs: ThumbReport | None
    agreement: dict[str, Estimate]
    """Accuracy on the pairs of each named annotator."""
    distribution: Distribution
    edits: dict[str, EditReport]
    mistakes: tuple[Mistake, ...]

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain values for JSON; infinite bounds become None."""
        return dict(_finite(dataclasses.asdict(self)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
