"""The verdict on a series of evaluations: pure functions of their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FEW = 8
"""Held-out responses below which a difference in reward says little."""


@dataclass(frozen=True)
class Limits:
    """When a run counts as improved, converged or collapsed."""

    patience: int | None = None
    min_delta: float = 0.0
    reward_drop: float = 1.0
    kl_per_token: float = 1.0
    entropy_share: float = 0.02
    length_ratio: float = 5.0


@dataclass(frozen=True)
class Performance:
    """How the latest evaluation compares with those before it."""

    performance_improved: bool
    avg_reward: float
    first_reward: float
    best_reward: float
    best_step: int


@dataclass(frozen=True)
class Convergence:
    """Whether to go on: ``status`` is baseline, improved, unchanged, converged or collapsed; ``reasons`` say why."""

    status: str
    reasons: tuple[str, ...]

    @property
    def converged(self) -> bool:
        """The held-out reward has stopped rising."""
        return self.status == "converged"

    @property
    def collapsed(self) -> bool:
        """The policy has left the ground where its reward means anything."""
        return self.status == "collapsed"

    @property
    def should_stop(self) -> bool:
        """Nothing is to be gained from more steps."""
        return self.converged or self.collapsed


def judge(history: Sequence[Mapping[str, float]], limits: Limits) -> tuple[Performance, Convergence]:
    """The verdict on the latest of some evaluations, each with ``avg_reward`` and what other numbers there are."""
    best = best_evaluation(history, limits)
    now, waited = history[-1], len(history) - 1 - best
    performance = Performance(
        performance_improved=waited == 0,
        avg_reward=now["avg_reward"],
        first_reward=history[0]["avg_reward"],
        best_reward=history[best]["avg_reward"],
        best_step=int(history[best].get("step", best)),
    )
    top = f"{performance.best_reward:.4g} (step {performance.best_step})"
    if reasons := collapse_reasons(history[0], now, limits):
        return performance, Convergence("collapsed", reasons)
    if limits.patience is not None and waited >= limits.patience:
        return performance, Convergence("converged", (f"no rise over {top} in {waited} evaluations",))
    if len(history) == 1:
        return performance, Convergence("baseline", ("the evaluation that later ones are compared with",))
    if waited == 0:
        return performance, Convergence("improved", (f"the best so far; the first was {performance.first_reward:.4g}",))
    return performance, Convergence("unchanged", (f"not above the best, {top}",))


def best_evaluation(history: Sequence[Mapping[str, float]], limits: Limits) -> int:
    """Index of the highest reward that no collapse bought; a rise of less than ``min_delta`` is none."""
    best = 0
    for i, evaluation in enumerate(history):
        higher = evaluation["avg_reward"] > history[best]["avg_reward"] + limits.min_delta
        if higher and not collapse_reasons(history[0], evaluation, limits):
            best = i
    return best


def judge_run(history: Sequence[Mapping[str, float]], limits: Limits) -> tuple[Performance, Convergence]:
    """The verdict on a whole run: why it stopped, or else what its best policy gained."""
    performance, convergence = judge(history, limits)
    if convergence.should_stop:
        return performance, convergence
    count = history[-1].get("num_responses", FEW)
    doubt = (f"only {count:.0f} held-out responses, so this may be chance",) if count < FEW else ()
    change = f"{performance.first_reward:.4g} -> {performance.best_reward:.4g} at step {performance.best_step}"
    if performance.best_step > int(history[0].get("step", 0)):
        return performance, Convergence("improved", (f"held-out reward {change}", *doubt))
    reason = f"no evaluation was above the first, {performance.first_reward:.4g}"
    return performance, Convergence("unchanged", (reason, *doubt))


def collapse_reasons(first: Mapping[str, float], now: Mapping[str, float], limits: Limits) -> tuple[str, ...]:
    """Each way in which the latest evaluation has run away from the first one."""
    reasons = []
    floor = first["avg_reward"] - allowed_drop(first, now, limits.reward_drop)
    if now["avg_reward"] < floor:
        reasons.append(f"reward fell from {first['avg_reward']:.4g} to {now['avg_reward']:.4g} (limit {floor:.4g})")
    if now.get("kl_per_token", 0.0) > limits.kl_per_token:
        reasons.append(f"KL ran away: {now['kl_per_token']:.3g} per token (limit {limits.kl_per_token:g})")
    entropy, least = now.get("entropy"), limits.entropy_share * first.get("entropy", 0.0)
    if entropy is not None and entropy < least:
        reasons.append(f"entropy died: {entropy:.3g}, was {first['entropy']:.3g} (limit {least:.3g})")
    length, was = now.get("response_length"), first.get("response_length")
    if length is not None and was and not was / limits.length_ratio <= length <= was * limits.length_ratio:
        reasons.append(f"lengths ran away: {length:.1f} tokens, was {was:.1f} (limit {limits.length_ratio:g} times)")
    return tuple(reasons)


def allowed_drop(first: Mapping[str, float], now: Mapping[str, float], deviations: float) -> float:
    """``deviations`` times the pooled deviation of the rewards, but at least what chance explains.

    The difference of two means of n responses has the deviation σ √(2/n); a fall within three of those is no evidence,
    and of fewer than eight responses not even the deviation is known: a handful of prompts cannot stop a run.
    """
    if not {"reward_std", "num_responses"} <= first.keys() & now.keys():
        return math.inf
    count = min(first["num_responses"], now["num_responses"])
    if count < FEW:
        return math.inf
    pooled = math.sqrt((first["reward_std"] ** 2 + now["reward_std"] ** 2) / 2)
    return pooled * max(deviations, 3 * math.sqrt(2 / count))
