"""The rewards and advantages of a stored step with other settings, by the functions that training uses."""

from __future__ import annotations

from torch import Tensor

from ppolm.advantage import AdvantageComp
from ppolm.errors import DataError
from ppolm.explain.settings import StepSettings
from ppolm.reward_kl import add_kl_to_sa_pairs, adjust_rewards_with_kl
from ppolm.token_attribution import SAPairs

INPUTS = ("logprob_policy", "logprob_ref", "score", "value")
"""Inputs of a step; the columns below follow from them and the settings."""
RECOMPUTED = ("kl", "reward", "td_error", "advantage", "return", "reward_to_go")


def recompute(pairs: SAPairs, settings: StepSettings) -> SAPairs:
    """The table with KL, rewards, TD errors, advantages and returns computed with ``settings``; nothing is written.

    With the settings of the step itself every column comes out as it was, bit for bit: the same functions add the same
    float32 numbers in the same order. (On another machine or with more threads torch may add them in another order;
    then they differ by rounding, below 1e-5.)
    """
    rewarded = with_rewards(pairs, settings, settings.whiten_rewards)
    return AdvantageComp(settings.gamma, settings.lam, settings.whiten_advantages).add_advantages(rewarded)


def with_rewards(pairs: SAPairs, settings: StepSettings, whiten: bool) -> SAPairs:
    """The table with KL and token rewards; ``whiten`` False shows them before they are whitened."""
    check_inputs(pairs)
    pairs = add_kl_to_sa_pairs(pairs, settings.kl_estimator)
    scores = [tokens.tolist() for tokens in pairs.per_sequence("score")]
    return adjust_rewards_with_kl(pairs, scores, settings.reward_coef, whiten)


def differences(before: SAPairs, after: SAPairs) -> dict[str, Tensor]:
    """after − before of every recomputed column that the stored table has; each [N], in float64."""
    return {
        name: after.column(name).double() - before.columns[name].double()
        for name in RECOMPUTED
        if name in before.columns
    }


def check_inputs(pairs: SAPairs) -> None:
    """Raise for a table without the inputs that rewards and advantages are computed from."""
    missing = [name for name in INPUTS if name not in pairs.columns]
    if missing:
        raise DataError(
            f"The table has no column {', '.join(missing)}, so its advantages cannot be explained or computed again. "
            f"Tables that ppolm train writes have {', '.join(INPUTS)}."
        )
