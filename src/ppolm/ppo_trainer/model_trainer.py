"""PPO updates of the policy and the value model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ppolm.batches.sequences import Microbatch
from ppolm.components import KLCoefficient
from ppolm.config import PPOConfig
from ppolm.experience_buffer import BatchedData
from ppolm.models import PolicyModel, ValueModel
from ppolm.models.base_model import BaseModel
from ppolm.reward_kl.kl_divergence import estimate_kl
from ppolm.state import State
from ppolm.token_attribution import SAPairs, as_sa_pairs
from ppolm.training.mean_loss import MeanLoss
from ppolm.training.policy_loss import ppo_clip_loss
from ppolm.training.policy_ratio import approx_kl, is_clipped, policy_ratio
from ppolm.training.running_means import DeferredMeans, RunningMeans
from ppolm.training.schedule import learning_rate_factor
from ppolm.training.updater import Updater
from ppolm.training.value_loss import value_loss

Data = BatchedData | SAPairs | Sequence[Mapping[str, Any]]


class ModelTrainer:
    """Trains policy and value model on tables with targets, each with its own optimiser."""

    def __init__(self, policy: PolicyModel, value: ValueModel, config: PPOConfig, kl: KLCoefficient) -> None:
        self.policy, self.value, self.config, self.kl = policy, value, config, kl
        self.random = torch.Generator().manual_seed(config.seed)
        self.ranks = policy.setup.ranks
        """The processes that share the passes of an update."""

        def updater(name: str, model: BaseModel, rate: float) -> Updater:
            rules = (config.adam_eps, config.weight_decay, config.max_grad_norm, config.max_skipped_updates)
            return Updater(name, model.parameters(), rate, *rules, self.ranks)

        self.policy_updater = updater("policy", policy, config.learning_rate)
        self.value_updater = updater("value", value, config.value_learning_rate)

    def set_step(self, step: int, total_steps: int | None) -> None:
        """Begin PPO step ``step`` (from 0): set both learning rates."""
        factor = learning_rate_factor(step, total_steps, self.config.lr_schedule, self.config.warmup_steps)
        self.policy_updater.set_learning_rate(factor)
        self.value_updater.set_learning_rate(factor)

    def train_policy_model(self, sa_pairs: Data) -> MeanLoss:
        """PPO epochs over minibatches for the policy; returns the mean loss. ``target_kl`` may stop them early.

        In the first update no weight has changed yet, so ``first_mismatch`` is the rounding difference between the
        pass that computed ``logprob_policy`` and this one.
        """
        means, first, early_stop = RunningMeans(), dict[str, float](), 0.0
        with self.policy.active(trainable=True):  # once for all updates
            for pairs in self._minibatches(sa_pairs):
                update, mismatch = self._policy_update(pairs)
                means.add(update, weight=len(pairs))
                first.setdefault("first_mismatch", mismatch)
                if self._too_far(update):
                    early_stop = 1.0
                    break
        return MeanLoss(means.mean("policy_loss"), {"early_stop": early_stop, **first, **means.means()})

    def train_value_model(self, sa_pairs: Data) -> MeanLoss:
        """PPO epochs over minibatches for the value model; returns the mean loss."""
        means = RunningMeans()
        with self.value.active(trainable=True):  # once for all updates
            for pairs in self._minibatches(sa_pairs):
                means.add(self._value_update(pairs), weight=len(pairs))
        return MeanLoss(means.mean("value_loss"), means.means())

    def train_step(self, batch: Data) -> tuple[float, float]:
        """One update of each model on the whole batch; returns policy loss and value loss."""
        pairs = _pairs(batch)
        (policy, _), value = self._policy_update(pairs), self._value_update(pairs)
        return policy.get("policy_loss", math.nan), value.get("value_loss", math.nan)

    def metrics(self) -> dict[str, float]:
        """Learning rates of the step, and updates skipped so far."""
        return {
            "learning_rate": self.policy_updater.learning_rate,
            "value_learning_rate": self.value_updater.learning_rate,
            "skipped_updates": self.policy_updater.skipped + self.value_updater.skipped,
        }

    def adjustable(self) -> Mapping[str, float]:
        """What a callback may change: both peak learning rates."""
        return {"learning_rate": self.policy_updater.peak, "value_learning_rate": self.value_updater.peak}

    def adjust(self, name: str, value: float) -> None:
        """Use another peak learning rate; ``set_step`` multiplies it by the schedule's factor."""
        updater = self.policy_updater if name == "learning_rate" else self.value_updater
        updater.peak = value

    def state_dict(self) -> State:
        """Both optimisers, and the generator that shuffles minibatches."""
        updaters = {updater.name: updater.state_dict() for updater in (self.policy_updater, self.value_updater)}
        return {**updaters, "random": self.random.get_state()}

    def load_state_dict(self, state: State) -> None:
        """Continue from a checkpoint."""
        for updater in (self.policy_updater, self.value_updater):
            updater.load_state_dict(state[updater.name])
        self.random.set_state(state["random"])

    def _minibatches(self, data: Data) -> Iterator[SAPairs]:
        batch = BatchedData(_pairs(data))
        for _ in range(self.config.ppo_epochs):
            yield from batch.minibatches(self.config.minibatch_size, self.config.minibatch_order, self.random)

    def _microbatches(self, model: BaseModel, pairs: SAPairs) -> Iterator[Microbatch]:
        return model.microbatches(pairs.sequences, self.config.microbatch_tokens)

    def _policy_update(self, pairs: SAPairs) -> tuple[dict[str, float], float]:
        """The means of one update, and the largest |log π_new − log π_old| before it."""
        config, sums, count = self.config, DeferredMeans(self.ranks), len(pairs)
        clip_high = config.clip_epsilon if config.clip_epsilon_high is None else config.clip_epsilon_high

        def loss(batch: Microbatch) -> Tensor:
            new, entropy = self.policy.token_logprobs(
                batch, config.temperature, entropy="train" if config.entropy_coef else "measure"
            )
            old, ref, advantage = _columns(pairs, batch, "logprob_policy", "logprob_ref", "advantage")
            ratio = policy_ratio(new, old)
            terms = ppo_clip_loss(ratio, advantage, config.clip_epsilon, clip_high, config.dual_clip)
            if "importance_weight" in pairs.columns:  # sampled elsewhere
                terms = terms * _columns(pairs, batch, "importance_weight")[0]
            if self.kl.loss_coef:
                terms = terms + self.kl.loss_coef * estimate_kl(new, ref, config.kl_estimator)
            if config.entropy_coef:
                terms = terms - config.entropy_coef * entropy
            clipped = is_clipped(ratio, config.clip_epsilon, clip_high).float()
            tokens = {"policy_loss": terms, "entropy": entropy, "ratio": ratio, "clip_fraction": clipped}
            tokens["approx_kl"] = approx_kl(new, old)
            means = {name: value.detach().mean() for name, value in tokens.items()}
            sums.add(means, weight=len(new), largest={"mismatch": (new.detach() - old).abs().max()})
            return terms.sum() / count

        def veto() -> bool:
            return config.target_kl is not None and self._too_far(sums.means())  # reading means waits for the device

        with self.policy.active(trainable=True):  # the backward pass needs the policy's adapter, too
            norm = self.policy_updater.update(self._microbatches(self.policy, pairs), loss, veto, sums)
        mismatch = sums.largest("mismatch")
        if norm is None:
            return (sums.means() if self._too_far(sums.means()) else {}), mismatch
        return sums.means() | {"policy_grad_norm": norm}, mismatch

    def _too_far(self, update: Mapping[str, float]) -> bool:
        """Whether the KL to the rollout's policy exceeds 1.5 times ``target_kl``."""
        target = self.config.target_kl
        return target is not None and update.get("approx_kl", 0.0) > 1.5 * target

    def _value_update(self, pairs: SAPairs) -> dict[str, float]:
        config, sums, count = self.config, DeferredMeans(self.ranks), len(pairs)
        target_name = "return" if config.value_target == "gae" else "reward_to_go"

        def loss(batch: Microbatch) -> Tensor:
            new = self.value.token_values(batch)
            old, target = _columns(pairs, batch, "value", target_name)
            terms = value_loss(new, target, old, config.value_clip)
            sums.add({"value_loss": terms.detach().mean()}, weight=len(new), largest={})
            return config.value_coef * terms.sum() / count

        with self.value.active(trainable=True):
            norm = self.value_updater.update(self._microbatches(self.value, pairs), loss, metrics=sums)
        return {} if norm is None else sums.means() | {"value_grad_norm": norm}


def _pairs(data: Data) -> SAPairs:
    return data.pairs if isinstance(data, BatchedData) else as_sa_pairs(data)


def _columns(pairs: SAPairs, batch: Microbatch, *names: str) -> list[Tensor]:
    """Columns of a table for the actions of one microbatch, moved to the model's device in one copy."""
    columns = torch.stack([pairs.column(name)[batch.rows] for name in names])
    return list(columns.to(batch.actions.device).unbind())
