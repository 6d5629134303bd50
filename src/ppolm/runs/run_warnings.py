"""What a person should know of a run before its figures: warnings in words, each with what to turn. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from ppolm.runs.run_overview import number

Row = Mapping[str, Any]
LATEST = 5
"""Training steps at the end of a run whose mean is judged: a single one is noise."""
MOVED_AFTER = 10
"""Steps after which a policy that learns has moved."""
LEAST_ENDED = 0.5
LARGEST_CLIP = 0.3
LEAST_KL = 0.005
SAME_SHARE = 0.2


def warnings_of(train: Sequence[Row], evaluations: Sequence[Row], settings: Mapping[str, Any]) -> list[str]:
    """The warnings about a run, most important first."""
    checks: tuple[Callable[[Sequence[Row], Sequence[Row], Mapping[str, Any]], Iterator[str]], ...] = (
        _broken,
        _cut_off,
        _equal_rewards,
        _hardly_moved,
        _steps_too_large,
        _blind_value_model,
    )
    return [said for check in checks for said in check(train, evaluations, settings)]


def is_alarm(evaluation: Row) -> bool:
    """Whether an evaluation found that something is wrong."""
    return evaluation.get("status") in ("collapsed", "over-optimised", "suspect")


def latest(rows: Sequence[Row], name: str) -> float | None:
    """The mean of a metric over the last steps that have it."""
    values = [value for row in rows[-LATEST:] if (value := number(row.get(name))) is not None]
    return fmean(values) if values else None


def _broken(_train: Sequence[Row], evaluations: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    """What to turn if the last evaluation is an alarm; the alarm itself is said elsewhere."""
    if any(is_alarm(row) for row in evaluations[-1:]):
        rate, kl_coef = (settings.get(name, "unknown") for name in ("learning_rate", "kl_coef"))
        yield (
            f"At the end the texts were bad; read them below. Lower learning_rate (it is {rate}), or raise kl_coef (it "
            f"is {kl_coef}), or let the reward see what is wrong with them (docs/troubleshooting.md)."
        )


def _cut_off(train: Sequence[Row], evaluations: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    held_out = latest(evaluations[-1:], "ended_fraction")
    ended = latest(train, "ended_fraction") if held_out is None else held_out
    if ended is not None and ended < LEAST_ENDED:
        said = (
            f"Only {ended:.0%} of the responses end by themselves: the others are cut off after "
            f"{settings.get('max_new_tokens', 'max_new_tokens')} tokens, and are scored as they stand."
        )
        if ended == 0:
            yield (
                f"{said} A model that never ends has not learnt to: teach it with ppolm sft, and see that the EOS of "
                "its tokenizer is the token with which its texts end; or raise max_new_tokens."
            )
        elif (number(settings.get("missing_eos_penalty")) or 0) > 0:
            yield f"{said} Raise max_new_tokens, or missing_eos_penalty."
        else:
            yield f"{said} Raise max_new_tokens, or set missing_eos_penalty to 1."


def _equal_rewards(train: Sequence[Row], _evaluations: Sequence[Row], _settings: Mapping[str, Any]) -> Iterator[str]:
    same = sum(number(row.get("reward_std")) == 0 for row in train if (number(row.get("num_responses")) or 0) > 1)
    if same > SAME_SHARE * len(train):
        yield (
            f"In {same} of {len(train)} steps all responses had the same reward, so these steps taught nothing. Use a "
            "reward with finer differences, a larger batch_size, or a higher temperature."
        )


def _hardly_moved(train: Sequence[Row], _evaluations: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    kl = latest(train, "kl_per_token")
    if kl is not None and abs(kl) < LEAST_KL and len(train) >= MOVED_AFTER:
        yield (
            f"After {len(train)} steps the policy has hardly moved from its reference (KL per token {kl:.2g}). Raise "
            f"learning_rate (it is {settings.get('learning_rate', 'unknown')}), or lower kl_coef."
        )


def _steps_too_large(train: Sequence[Row], _evaluations: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    clipped = latest(train, "clip_fraction")
    if clipped is not None and clipped > LARGEST_CLIP:
        yield (
            f"{clipped:.0%} of the tokens left the clip range in the last steps: the policy moves further in a step "
            f"than PPO trusts. Lower learning_rate (it is {settings.get('learning_rate', 'unknown')}) or ppo_epochs."
        )


def _blind_value_model(
    train: Sequence[Row], _evaluations: Sequence[Row], _settings: Mapping[str, Any]
) -> Iterator[str]:
    accuracy = latest(train, "value_accuracy")
    if accuracy is not None and accuracy < 0 and len(train) >= MOVED_AFTER:
        yield (
            f"The value model predicts returns worse than a constant would (value accuracy {accuracy:.2f}), so "
            "advantages are noisier than they need be. Raise value_learning_rate, or set value_warmup_steps."
        )
