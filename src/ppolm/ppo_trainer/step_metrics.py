"""The numbers of one PPO step. Each has one definition, in docs/metrics.md."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ppolm.reward_kl.reward_adjuster import Score
from ppolm.reward_kl.reward_normalizer import total
from ppolm.token_attribution import SAPairs
from ppolm.training.value_loss import explained_variance

if TYPE_CHECKING:
    from ppolm.ppo_trainer.ppo_trainer import PPOTrainer


def table_metrics(pairs: SAPairs, rewards: Sequence[Score], value_target: str) -> dict[str, float]:
    """What a finished table says, in training and in evaluation alike."""
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


def sampler_mismatch(trainer: PPOTrainer, pairs: SAPairs) -> float:
    """Largest difference between a log-probability of the sampler and of the scorer; NaN if no pass could tell."""
    if trainer.attributor.recomputes:
        return float((pairs.column("logprob_sampler") - pairs.column("logprob_policy")).abs().max())
    return trainer.model_trainer.metrics.get("first_mismatch", math.nan)


def step_metrics(
    trainer: PPOTrainer, pairs: SAPairs, rewards: Sequence[Score], policy_loss: float, value_loss: float
) -> dict[str, Any]:
    """All numbers of the step that just ended."""
    model_trainer, rewarder = trainer.model_trainer, trainer.reward_computer
    metrics: dict[str, Any] = {"step": trainer.step}
    metrics |= table_metrics(pairs, rewards, trainer.config.value_target)
    metrics |= {"policy_loss": policy_loss, "value_loss": value_loss}
    metrics |= {name: value for name, value in model_trainer.metrics.items() if name not in metrics}
    metrics |= {
        "kl_coef": trainer.kl.coef,
        "learning_rate": model_trainer.policy_updater.learning_rate,
        "value_learning_rate": model_trainer.value_updater.learning_rate,
        "skipped_updates": model_trainer.policy_updater.skipped + model_trainer.value_updater.skipped,
        "reward_failures": rewarder.failures,
        "sampler_mismatch": sampler_mismatch(trainer, pairs),
        "buffer_tokens": len(trainer.buffer),
        "evicted_tokens": trainer.buffer.evicted_tokens,
    }
    if len(rewarder.components) > 1:
        metrics |= {f"reward/{name}": value for name, value in rewarder.components.items()}
    return metrics


class Stopwatch:
    """Wall-clock seconds of named phases, as ``seconds/<phase>``: the only numbers of a run that do not repeat."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Time the block."""
        start = time.perf_counter()
        yield
        self.seconds[f"seconds/{phase}"] = time.perf_counter() - start
