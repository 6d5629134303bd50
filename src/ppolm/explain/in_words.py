"""An explanation as plain English, one sentence per term."""

from __future__ import annotations

import math

from ppolm.explain.advantage_terms import Explanation, Whitening

ROUNDING = 1e-5
"""Largest difference to the stored advantage that counts as rounding."""


def sentences(explanation: Explanation, text: str = "") -> list[str]:
    """The terms of the advantage, one after the other. ``text`` is the text of the token."""
    return [
        _opening(explanation, text),
        *_rewards(explanation),
        *_discounted_sum(explanation),
        *_ending(explanation),
    ]


def number(value: float) -> str:
    """Four significant digits, with a proper minus sign: −0.01235."""
    if not math.isfinite(value):
        return "not a number"
    shown = f"{value:.4g}"
    return "0" if float(shown) == 0 else shown.replace("-", "−")


def signed(value: float) -> str:
    """``number`` with its sign."""
    return f"+{number(value)}" if value > 0 else number(value)


def _opening(it: Explanation, text: str) -> str:
    quoted = f", “{text}”," if text else ""
    average = "the average of the batch" if it.advantage_whitening else "the value model expected"
    sense = f"better than {average}" if it.stored_advantage > 0 else f"worse than {average}"
    if it.stored_advantage == 0:
        sense = f"just as good as {average}"
    if math.isnan(it.stored_advantage):
        sense = "so it says nothing"
    return f"Token {it.step + 1} of {it.length}{quoted} has the advantage {signed(it.stored_advantage)}: {sense}."


def _rewards(it: Explanation) -> list[str]:
    last, coef = it.step + 1 == it.length, it.settings.reward_coef
    where = "The response ends here" if last else "The response goes on"
    found = [
        f"{where}, and this token's own score is {number(it.score)}.",
        f"The policy gave it the log-probability {number(it.logprob_policy)} ({_percent(it.logprob_policy)}), the "
        f"reference {number(it.logprob_ref)} ({_percent(it.logprob_ref)}): "
        f"KL by {it.settings.kl_estimator} is {number(it.kl)}.",
    ]
    if coef:
        found.append(
            f"The KL penalty is {number(coef)} × {_bracketed(it.kl)} = {number(it.penalty)}, so the reward is "
            f"{number(it.score)} − {_bracketed(it.penalty)} = {number(it.reward_before)}."
        )
    else:
        found.append(f"KL has no weight in the rewards of this step, so the reward is the score: {number(it.score)}.")
    if it.reward_whitening:
        white = it.reward_whitening
        found.append(
            f"Rewards are whitened and keep their mean: {_whitened(it.reward_before, white)} + "
            f"{_bracketed(white.mean)} = {number(it.reward)}."
        )
    return found


def _discounted_sum(it: Explanation) -> list[str]:
    gamma, discount = it.settings.gamma, it.settings.gamma * it.settings.lam
    after = "0 after the last token" if it.step + 1 == it.length else number(it.next_value)
    found = [
        f"The value model expected {number(it.value)} before this token and {after} after it.",
        f"TD error: {number(it.reward)} + {number(gamma)} × {_bracketed(it.next_value)} − {_bracketed(it.value)} = "
        f"{signed(it.td_error)}.",
    ]
    later = [one for one in it.contributions if one.ahead]
    if not later and not it.rest_count:
        return [*found, f"No token follows, so the advantage is this TD error: {signed(it.raw_advantage)}."]
    parts = [f"{signed(one.amount)} ({one.ahead} on)" for one in later]
    if it.rest_count:
        parts.append(f"{signed(it.rest)} (the other {it.rest_count})")
    added = ", ".join(parts)
    return [
        *found,
        f"To it the TD errors of the later tokens are added, each weighed by γλ = {number(discount)} per token of "
        f"distance: {added}. Together: {signed(it.raw_advantage)}.",
    ]


def _ending(it: Explanation) -> list[str]:
    found = []
    if it.advantage_whitening:
        white = it.advantage_whitening
        found.append(f"Advantages are whitened: {_whitened(it.raw_advantage, white)} = {signed(it.advantage)}.")
    if not abs(it.residual) <= ROUNDING:
        found.append(
            f"The stored advantage is {signed(it.stored_advantage)}, which differs by {signed(it.residual)}: this run "
            "did not compute its advantages by these settings alone, perhaps by a component of its own."
        )
    return found


def _whitened(value: float, white: Whitening) -> str:
    return f"({number(value)} − {_bracketed(white.mean)}) / {number(white.deviation)}"


def _bracketed(value: float) -> str:
    return f"({number(value)})" if value < 0 else number(value)


def _percent(logprob: float) -> str:
    return f"{100 * math.exp(min(logprob, 0.0)):.3g} %" if not math.isnan(logprob) else "unknown"
