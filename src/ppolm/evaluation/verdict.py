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
    judge_drop: float = 3.0


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
    """Whether to go on, and why.

    ``status`` is baseline, improved, unchanged, converged, over-optimised or collapsed.
    """

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
    def over_optimised(self) -> bool:
        """The reward still rises, but no longer for what it stands for."""
        return self.status == "over-optimised"

    @property
    def should_stop(self) -> bool:
        """Nothing is to be gained from more steps."""
        return self.converged or self.over_optimised or self.collapsed


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
    if reasons := over_optimisation_reasons(history, limits):
        return performance, Convergence("over-optimised", reasons)
    if limits.patience is not None and waited >= limits.patience:
        return performance, Convergence("converged", (f"no rise over {top} in {waited} evaluations",))
    if len(history) == 1:
        return performance, Convergence("baseline", ("the evaluation that later ones are compared with",))
    if waited == 0:
        return performance, Convergence("improved", (f"the best so far; the first was {performance.first_reward:.4g}",))
    return performance, Convergence("unchanged", (f"not above the best, {top}",))


def best_evaluation(history: Sequence[Mapping[str, float]], limits: Limits) -> int:
    """Index of the highest reward that neither collapse nor over-optimisation bought.

    A rise of less than ``min_delta`` is none.
    """
    best = 0
    for i, evaluation in enumerate(history):
        higher = evaluation["avg_reward"] > history[best]["avg_reward"] + limits.min_delta
        if higher and not (
            collapse_reasons(history[0], evaluation, limits) or over_optimisation_reasons(history[: i + 1], limits)
        ):
            best = i
    return best


def judge_run(history: Sequence[Mapping[str, float]], limits: Limits) -> tuple[Performance, Convergence]:
    """The verdict on a whole run: why it stopped, or else what its best policy gained."""
    performance, convergence = judge(history, limits)
    if convergence.should_stop:
        return performance, convergence
    first, best = history[0], history[best_evaluation(history, limits)]
    doubt: tuple[str, ...] = ()
    if best.get("num_responses", FEW) < FEW:
        doubt = (f"only {best['num_responses']:.0f} held-out responses, so this may be chance",)
    elif "reward_std" in first and best is not first:
        error = _difference_error(first, best, "reward_std")
        if best["avg_reward"] - first["avg_reward"] < 2 * error:
            doubt = (f"less than two standard errors ({error:.2g}) apart, so this may be chance",)
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


def over_optimisation_reasons(history: Sequence[Mapping[str, float]], limits: Limits) -> tuple[str, ...]:
    """Whether a judge that is not trained on has fallen from its best while the reward has not (Goodhart's law).

    Both changes are measured in standard errors of a difference of means, √((σ₁² + σ₂²) / n).
    """
    now = history[-1]
    if "judge" not in now or now["num_responses"] < FEW:
        return ()
    peak = max(history, key=lambda row: row["judge"])
    fall = (peak["judge"] - now["judge"]) / max(_difference_error(peak, now, "judge_std"), 1e-12)
    reward_fall = (peak["avg_reward"] - now["avg_reward"]) / max(_difference_error(peak, now, "reward_std"), 1e-12)
    if fall <= limits.judge_drop or reward_fall > limits.judge_drop:
        return ()
    return (
        f"the judge fell from {peak['judge']:.4g} (step {peak['step']:.0f}) to {now['judge']:.4g} while the reward "
        f"went from {peak['avg_reward']:.4g} to {now['avg_reward']:.4g}: the policy now exploits the reward",
    )


def _difference_error(first: Mapping[str, float], second: Mapping[str, float], deviation: str) -> float:
    return math.sqrt(first[deviation] ** 2 / first["num_responses"] + second[deviation] ** 2 / second["num_responses"])


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
