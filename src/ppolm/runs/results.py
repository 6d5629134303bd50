"""What a finished training run reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppolm.evaluation.verdict import Performance


@dataclass(frozen=True)
class TrainingResults:
    """The outcome of ``PPOTrainer.train``."""

    run_dir: Path
    """The run folder."""
    best_dir: Path
    """PEFT folder of the best policy: the one with the highest held-out reward, or the last one without evaluation."""
    steps: int
    """PPO steps done, including those before a resume."""
    stopped: str
    """Why it ended: finished, converged, over-optimised, collapsed, stopped (by a callback), or, in the report of a run
    that has raised an error, interrupted (by a signal) or failed."""
    verdict: str
    """improved, unclear, unchanged, suspect, over-optimised, collapsed, or not evaluated."""
    reasons: tuple[str, ...]
    """The reasons for the verdict."""
    performance: Performance | None
    """First and best held-out reward; None without evaluation."""
    metrics: list[dict[str, Any]] = field(repr=False)
    """The metrics of each PPO step of this call."""
    evaluations: list[dict[str, float]] = field(repr=False)
    """The metrics of each evaluation, including those before a resume."""

    doubts: tuple[str, ...] = ()
    """Objections to the reward itself, independent of the verdict."""
    why: str = ""
    """Which callback stopped it, and the reason that it gave."""

    @property
    def ending(self) -> str:
        """Why it ended, with the reason of a callback."""
        return f"{self.stopped} ({self.why})" if self.why else self.stopped

    @property
    def stands_on(self) -> str:
        """The sample size behind the verdict."""
        last = self.evaluations[-1]
        prompts = last.get("num_prompts", last.get("num_responses", 0))
        return f"{last.get('num_responses', 0):.0f} responses to {prompts:.0f} different prompts per evaluation"

    def summary(self) -> str:
        """The outcome in a few lines of text."""
        lines = [f"{self.steps} PPO steps, {self.ending}. Verdict: {self.verdict} ({'; '.join(self.reasons)})."]
        if self.performance:
            best = self.performance
            change = f"{best.first_reward:.4g} at the start, {best.best_reward:.4g} at its best (step {best.best_step})"
            lines.append(f"Held-out reward: {change}, {best.avg_reward:.4g} at the end ({self.stands_on}).")
        lines += self.doubts
        if self.metrics and self.metrics[-1]["reward_failures"]:
            lines.append(f"{self.metrics[-1]['reward_failures']} scores failed and were replaced by default_reward.")
        if self.stopped == "collapsed":
            lines.append("The last policy has collapsed; use the best one instead.")
        return "\n".join([*lines, f"Best policy: {self.best_dir}", f"Run folder:  {self.run_dir}"])
