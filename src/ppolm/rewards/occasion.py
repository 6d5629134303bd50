"""What responses are scored for: the trainer and the loop around it say so, a reward that asks people reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Purpose = Literal["training", "evaluation"]


@dataclass
class Occasion:
    """Run, step and purpose of the responses that are being scored. One per trainer."""

    run: str | None = None
    """The name of the run's folder, once there is one."""
    step: int = 0
    """The step as metrics count it: 1 is the first of training, an evaluation has that of the policy it measures."""
    purpose: Purpose = "training"

    def begin(self, purpose: Purpose, step: int) -> None:
        """From now on responses are scored for this."""
        self.purpose, self.step = purpose, step
