"""Metrics of a finished table, the same in training and evaluation. docs/metrics.md defines each of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ppolm.reward_kl.reward_adjuster import Score
from ppolm.reward_kl.reward_normalizer import total
from ppolm.token_attribution import SAPairs
from ppolm.training.value_loss import explained_variance


def table_metrics(pairs: SAPairs, rewards: Sequence[Score], value_target: str) -> dict[str, float]:
    """Reward, KL, value accuracy and lengths of a table with targets."""
    totals = [total(reward) for reward in rewards]
    x = pairs.column("logprob_policy").double() - pairs.column("logprob_ref").double()
    target = pairs.column("return" if value_target == "gae" else "reward_to_go")
    return {
        "avg_reward": statistics.fmean(totals),
        "reward_std": statistics.pstdev(totals),
        "num_responses": len(totals),
        "kl": float(x.sum() / pairs.num_sequences),
        "kl_per_token": float(x.mean()),
        "value_accuracy": explained_variance(pairs.column("value"), target),
        "response_length": float(pairs.lengths.double().mean()),
        "ended_fraction": float(pairs.ended.double().mean()),
    }
