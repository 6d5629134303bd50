"""One measurement of a policy on held-out prompts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """The results of one policy on a set of prompts."""

    metrics: dict[str, float]
    """By name: see docs/metrics.md."""
    scores: dict[str, list[float]] = field(default_factory=dict)
    """Per response: ``reward``, and ``judge`` if there is one."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """Prompts, responses and rewards."""
