"""Collapse, over-optimisation and worse texts behind a higher reward. Pure functions of evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ppolm.data.held_out_split import ENOUGH_PROMPTS
from ppolm.evaluation.gain import Evaluation, difference_error, gain_of, number_of_prompts

FEW = 8
"""With fewer held-out prompts than this, no fall of reward or judge stops a run: not even the deviation is known."""


@dataclass(frozen=True)
class Limits:
    """When a run counts as converged, collapsed or suspect."""

    patience: int | None = None
    min_delta: float = 0.0
    reward_drop: float = 1.0
    kl_per_token: float = 1.0
    entropy_share: float = 0.02
    length_ratio: float = 5.0
    judge_drop: float = 3.0
    suspect_kl: float = 0.5
    """A gain is doubted above this share of kl_per_token, unless a judge confirms it."""
    repetition_rise: float = 0.1
    """A gain is doubted if the share of repeated 3-grams rises by more than this."""
    ended_drop: float = 0.25
    """A gain is doubted if the share of responses that end falls by more than this."""
    distinct_share: float = 0.5
    """Answers have become alike if the share of distinct 2-grams falls below this times the first evaluation's."""
    surprise_rise: float = 0.5
    """A gain is doubted if the reference finds the texts less likely than its own by more than this, nats per token."""


def degradation_reasons(history: Sequence[Evaluation], limits: Limits) -> tuple[str, ...]:
    """Signs that the latest evaluation's texts have become worse, short of collapse.

    None are reported if a judge that is not trained on has clearly risen.
    """
    first, now = history[0], history[-1]
    judged = gain_of(history, len(history) - 1, "judge")
    if judged is not None and judged.low > 0 and (number_of_prompts(now) or 0) >= ENOUGH_PROMPTS:
        return ()
    return tuple(_signs(first, now, limits))


def _signs(first: Evaluation, now: Evaluation, limits: Limits) -> Iterator[str]:
    def both(name: str) -> tuple[float, float] | None:
        return (first[name], now[name]) if name in first and name in now else None

    limit = limits.suspect_kl * limits.kl_per_token
    if now.get("kl_per_token", 0.0) > limit:
        yield f"KL {now['kl_per_token']:.2g} per token (limit {limit:g})"
    if (pair := both("repetition")) and pair[1] - pair[0] > limits.repetition_rise:
        yield f"repetition {pair[0]:.0%} -> {pair[1]:.0%}"
    if (pair := both("ended_fraction")) and pair[0] - pair[1] > limits.ended_drop:
        yield f"responses that end {pair[0]:.0%} -> {pair[1]:.0%}"
    if (pair := both("distinct_2")) and pair[1] < limits.distinct_share * pair[0]:
        yield f"different word pairs {pair[0]:.0%} -> {pair[1]:.0%}: answers have become alike"
    if (pair := both("reference_surprise")) and pair[1] - pair[0] > limits.surprise_rise:
        yield f"the reference finds the texts {pair[1] - pair[0]:.2g} nats per token less likely than its own"


def collapse_reasons(first: Evaluation, now: Evaluation, limits: Limits) -> tuple[str, ...]:
    """Every limit of collapse that the latest evaluation exceeds, compared with the first one."""
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


def over_optimisation_reasons(history: Sequence[Evaluation], limits: Limits) -> tuple[str, ...]:
    """Whether a judge that is not trained on has fallen from its best while the reward has not (Goodhart's law).

    Both changes are measured in standard errors of a difference of means, √((σ₁² + σ₂²) / n).
    """
    now = history[-1]
    if "judge" not in now or (number_of_prompts(now) or 0) < FEW:
        return ()
    peak = max(history, key=lambda row: row["judge"])
    fall = (peak["judge"] - now["judge"]) / max(difference_error(peak, now, "judge_std"), 1e-12)
    reward_fall = (peak["avg_reward"] - now["avg_reward"]) / max(difference_error(peak, now, "reward_std"), 1e-12)
    if fall <= limits.judge_drop or reward_fall > limits.judge_drop:
        return ()
    return (
        f"the judge fell from {peak['judge']:.4g} (step {peak['step']:.0f}) to {now['judge']:.4g} while the reward "
        f"went from {peak['avg_reward']:.4g} to {now['avg_reward']:.4g}: the policy now exploits the reward",
    )


def allowed_drop(first: Evaluation, now: Evaluation, deviations: float) -> float:
    """``deviations`` times the pooled deviation of the rewards, but at least what chance explains.

    The difference of two means over n prompts has standard deviation σ √(2/n); a fall within three of those is no
    evidence. With fewer than ``FEW`` prompts any fall is allowed.
    """
    if not {"reward_std", "num_responses"} <= first.keys() & now.keys():
        return math.inf
    count = min(number_of_prompts(first) or 0, number_of_prompts(now) or 0)
    if count < FEW:
        return math.inf
    pooled = math.sqrt((first["reward_std"] ** 2 + now["reward_std"] ** 2) / 2)
    return pooled * max(deviations, 3 * math.sqrt(2 / count))
