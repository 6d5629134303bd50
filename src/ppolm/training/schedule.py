"""Learning rates over a run."""

import math


def learning_rate_factor(step: int, total_steps: int | None, schedule: str, warmup_steps: int) -> float:
    """The share of the peak learning rate at PPO step ``step`` (from 0).

    First a linear warm-up to 1 over ``warmup_steps``; then constant, or down to 0 at ``total_steps`` linearly or as
    ½ (1 + cos π x). A run of unknown length stays at its peak.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant" or total_steps is None or total_steps <= warmup_steps:
        return 1.0
    done = min((step - warmup_steps) / (total_steps - warmup_steps), 1.0)
    return 1 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
