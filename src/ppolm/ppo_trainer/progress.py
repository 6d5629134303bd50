"""A progress bar on a terminal, plain lines elsewhere."""

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
        self.on_terminal = sys.stderr.isatty()
        self.bar = tqdm(total=total, initial=done, desc="PPO", unit="step", disable=not self.on_terminal)

    def step(self, metrics: Mapping[str, Any]) -> None:
        """One PPO step is over."""
        shown = {
            short: f"{metrics[name]:.3g}" for name, short in SHOWN.items() if math.isfinite(metrics.get(name, math.nan))
        }
        self.bar.set_postfix(shown)
        self.bar.update()
        if not self.on_terminal:
            self.say(
                f"step {metrics['step']}/{self.total}  " + "  ".join(f"{name} {value}" for name, value in shown.items())
            )

    def say(self, line: str) -> None:
        """A line that stays."""
        self.bar.write(line, file=sys.stderr)

    def close(self) -> None:
        """Leave the terminal tidy."""
        self.bar.close()
