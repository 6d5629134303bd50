"""The metrics of one PPO step. docs/metrics.md defines each of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ppolm.components import Attributor, Trainer
from ppolm.evaluation.table_metrics import table_metrics
from ppolm.reward_kl.reward_adjuster import Score
from ppolm.rewards.protocol import reward_components
from ppolm.token_attribution import SAPairs
from ppolm.training.importance_weight import effective_share
from ppolm.training.mean_loss import MeanLoss


def sampler_mismatch(attributor: Attributor, pairs: SAPairs, policy_loss: MeanLoss) -> float:
    """Largest difference between the sampler's and the scorer's log-probability of a token; NaN if not measured."""
    if attributor.recomputes:
        return float((pairs.column("logprob_sampler") - pairs.column("logprob_policy")).abs().max())
    return policy_loss.metrics.get("first_mismatch", math.nan)


def importance_metrics(pairs: SAPairs) -> dict[str, float]:
    """Mean, largest value (before the cap) and effective share of the importance weights; none without them."""
    if "importance_weight" not in pairs.columns:
        return {}
    weights = pairs.column("importance_weight")
    log_ratio = pairs.column("logprob_policy") - pairs.column("logprob_sampler")
    return {
        "importance_mean": float(weights.double().mean()),
        "importance_max": float(log_ratio.max().exp()),
        "importance_ess": effective_share(weights),
    }


def step_metrics(
    trainer: Trainer, pairs: SAPairs, rewards: Sequence[Score], policy_loss: MeanLoss, value_loss: MeanLoss
) -> dict[str, Any]:
    """All metrics of the step that just ended."""
    metrics: dict[str, Any] = {"step": trainer.step}
    metrics |= table_metrics(pairs, rewards, trainer.config.value_target)
    metrics |= {"policy_loss": float(policy_loss), "value_loss": float(value_loss)}
    updates = {**value_loss.metrics, **policy_loss.metrics}
    metrics |= {name: number for name, number in updates.items() if name not in metrics}
    metrics |= {"kl_coef": trainer.kl.coef, **trainer.model_trainer.metrics()}
    metrics |= {
        "reward_failures": trainer.reward_failures,
        "sampler_mismatch": sampler_mismatch(trainer.attributor, pairs, policy_loss),
        "buffer_tokens": len(trainer.buffer),
        "evicted_tokens": trainer.buffer.evicted_tokens,
    }
    engine_metrics = getattr(trainer.generator, "metrics", dict)  # a replaced generator need not have any
    return metrics | importance_metrics(pairs) | engine_metrics() | reward_components(rewards)


class Stopwatch:
    """Wall-clock seconds of named phases, as ``seconds/<phase>``: the only metrics that are not reproducible."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Time the block."""
        start = time.perf_counter()
        yield
        self.seconds[f"seconds/{phase}"] = time.perf_counter() - start
