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
    """A pair in which the model is sure of the opposite of what people said."""

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
    """Whether a reward model can be trained on, and what says so; None where no held-out row could tell."""

    verdict: Status
    reasons: tuple[Reason, ...]
    rows: dict[str, int]
    """Held-out rows of each kind: pairs, ties, scores, thumbs; and how many different prompts they have."""
    chose_weights: bool
    """These rows also decided which weights were kept, so the numbers are a little too good."""
    accuracy: Estimate | None
    calibration: Calibration | None
    length: LengthReport | None
    ties: Ties | None
    ratings: RatingReport | None
    thumbs: ThumbReport | None
    agreement: dict[str, Estimate]
    """Accuracy on the pairs of each annotator who is known."""
    distribution: Distribution
    edits: dict[str, EditReport]
    mistakes: tuple[Mistake, ...]

    def to_dict(self) -> dict[str, Any]:
        """All numbers, as JSON holds them: bounds that are not known are None."""
        return dict(_finite(dataclasses.asdict(self)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
