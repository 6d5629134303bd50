"""One line per step, with a progress bar below if there is a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

SHOWN = {"avg_reward": "reward", "kl": "kl", "entropy": "entropy", "policy_loss": "policy", "value_loss": "value"}


class Progress:
    """Prints the metrics of each step as it ends, on standard error."""

    def __init__(self, total: int, done: int) -> None:
        self.total = total
        self.bar = tqdm(
            total=total, initial=done, desc="PPO", unit="step", dynamic_ncols=True, disable=not sys.stderr.isatty()
        )

    def step(self, metrics: Mapping[str, Any]) -> None:
        """Report a finished PPO step."""
        numbers = {short: metrics.get(name, math.nan) for name, short in SHOWN.items()}
        shown = [f"{short} {value:.3g}" for short, value in numbers.items() if math.isfinite(value)]
        self.say(f"step {metrics['step']}/{self.total}  {'  '.join(shown)}")
        self.bar.update()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self.bar.write(line, file=sys.stderr)

    def close(self) -> None:
        """Close the progress bar."""
        self.bar.close()
