"""The terms that make up the advantage of a token, each with its value."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ppolm.advantage.ragged import discounted_suffix_sums
from ppolm.advantage.td_error import td_errors
from ppolm.explain.settings import StepSettings
from ppolm.explain.what_if import recompute, with_rewards
from ppolm.reward_kl.whitening import EPSILON, mean_and_variance
from ppolm.token_attribution import SAPairs

FIRST = 5
"""How many of the nearest terms of the discounted sum are shown, and how many of the largest later ones."""


@dataclass(frozen=True)
class Whitening:
    """The statistics that a batch of numbers was whitened with."""

    mean: float
    deviation: float
    """√(σ² + 1e-8)."""


@dataclass(frozen=True)
class Contribution:
    """What the TD error of a token adds to an advantage: (γλ)ⁱ · δ, for the token i positions later."""

    row: int
    ahead: int
    weight: float
    td_error: float
    amount: float


@dataclass(frozen=True)
class Explanation:
    """The advantage of one token as a chain of terms, from the inputs of the step to the stored value.

    kl by the estimator → penalty = β · kl → reward_before = score − penalty → reward (whitened, if the run does) →
    td_error = reward + γ · next_value − value → raw_advantage = Σ contributions + rest → advantage (whitened, if the
    run does) → stored_advantage = advantage + residual.
    """

    row: int
    sequence: int
    step: int
    """Position of the token in its response, from 0."""
    length: int
    """Tokens of the response."""
    settings: StepSettings
    score: float
    """The score of this token; the score of a whole response belongs to its last token."""
    logprob_policy: float
    logprob_ref: float
    kl: float
    penalty: float
    reward_before: float
    reward_whitening: Whitening | None
    reward: float
    value: float
    next_value: float
    """0 after the last token of a response."""
    td_error: float
    contributions: tuple[Contribution, ...]
    """The nearest terms of the sum and the largest of the later ones, in text order."""
    rest: float
    """The sum of all other terms."""
    rest_count: int
    raw_advantage: float
    advantage_whitening: Whitening | None
    advantage: float
    stored_advantage: float
    residual: float
    """stored − explained, NaN if the table has no advantages. Beyond rounding, these settings do not explain it."""


class StepTerms:
    """The part of the explanations that all tokens of a step share, computed once."""

    def __init__(self, pairs: SAPairs, settings: StepSettings) -> None:
        self.pairs, self.settings = pairs, settings
        self.table = recompute(pairs, settings)
        reward, value = self.table.column("reward"), pairs.column("value")
        whitened = settings.whiten_rewards
        self.reward_before = with_rewards(pairs, settings, whiten=False).column("reward") if whitened else reward
        self.td_errors = td_errors(reward, value, pairs.offsets, settings.gamma)
        discount = settings.gamma * settings.lam
        self.raw = discounted_suffix_sums(self.td_errors, pairs.offsets, discount).float()
        self.reward_whitening = _whitening(self.reward_before) if settings.whiten_rewards else None
        self.advantage_whitening = _whitening(self.raw) if settings.whiten_advantages else None

    def explain(self, row: int) -> Explanation:
        """The terms of one token's advantage."""
        pairs, settings = self.pairs, self.settings
        if not 0 <= row < len(pairs):
            raise IndexError(f"row {row} of a table with {len(pairs)} rows")
        sequence = int(torch.searchsorted(pairs.offsets, row, right=True)) - 1
        start, end = int(pairs.offsets[sequence]), int(pairs.offsets[sequence + 1])
        contributions, rest, rest_count = self._contributions(row, end)
        number = {name: float(pairs.column(name)[row]) for name in ("score", "logprob_policy", "logprob_ref", "value")}
        kl, advantage = float(self.table.column("kl")[row]), float(self.table.column("advantage")[row])
        stored = float(pairs.columns["advantage"][row]) if "advantage" in pairs.columns else math.nan
        return Explanation(
            row=row,
            sequence=sequence,
            step=row - start,
            length=end - start,
            settings=settings,
            **number,
            kl=kl,
            penalty=settings.reward_coef * kl,
            reward_before=float(self.reward_before[row]),
            reward_whitening=self.reward_whitening,
            reward=float(self.table.column("reward")[row]),
            next_value=float(pairs.column("value")[row + 1]) if row + 1 < end else 0.0,
            td_error=float(self.td_errors[row]),
            contributions=contributions,
            rest=rest,
            rest_count=rest_count,
            raw_advantage=float(self.raw[row]),
            advantage_whitening=self.advantage_whitening,
            advantage=advantage,
            stored_advantage=stored,
            residual=stored - advantage,
        )

    def _contributions(self, row: int, end: int) -> tuple[tuple[Contribution, ...], float, int]:
        """The displayed terms of the discounted sum, then the sum and the number of the others."""
        errors = self.td_errors[row:end]
        weights = torch.pow(self.settings.gamma * self.settings.lam, torch.arange(end - row, dtype=torch.float64))
        amounts = weights * errors
        shown = set(range(min(FIRST, len(amounts))))
        later = amounts[FIRST:].abs().nan_to_num()
        shown |= {FIRST + int(i) for i in later.topk(min(FIRST, len(later))).indices if later[i] > 0}
        rest = amounts.clone()
        rest[sorted(shown)] = 0
        made = tuple(
            Contribution(row + i, i, float(weights[i]), float(errors[i]), float(amounts[i])) for i in sorted(shown)
        )
        return made, float(rest.sum()), len(amounts) - len(shown)


def explain_advantage(pairs: SAPairs, row: int, settings: StepSettings) -> Explanation:
    """The terms of one token's advantage; for many tokens of a step, create ``StepTerms`` once."""
    return StepTerms(pairs, settings).explain(row)


def _whitening(values: Tensor) -> Whitening:
    mean, variance = mean_and_variance(values)
    return Whitening(float(mean), float((variance + EPSILON).sqrt()))
