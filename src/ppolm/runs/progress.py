"""A line per step, and below them a progress bar where there is a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

SHOWN = {"avg_reward": "reward", "kl": "kl", "entropy": "entropy", "policy_loss": "policy", "value_loss": "value"}


class Progress:
    """Shows the numbers of each step as it ends, on standard error."""

    def __init__(self, total: int, done: int) -> None:
        self.total = total
        self.bar = tqdm(
            total=total, initial=done, desc="PPO", unit="step", dynamic_ncols=True, disable=not sys.stderr.isatty()
        )

    def step(self, metrics: Mapping[str, Any]) -> None:
        """One PPO step is over."""
        numbers = {short: metrics.get(name, math.nan) for name, short in SHOWN.items()}
        shown = [f"{short} {value:.3g}" for short, value in numbers.items() if math.isfinite(value)]
        self.say(f"step {metrics['step']}/{self.total}  {'  '.join(shown)}")
        self.bar.update()

    def say(self, line: str) -> None:
        """A line that stays."""
        self.bar.write(line, file=sys.stderr)

    def close(self) -> None:
        """Leave the terminal tidy."""
        self.bar.close()
