"""The Evaluator: held-out prompts, always with the same random numbers, and a verdict."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppolm.data.prompts import Prompt
from ppolm.data.same_text import prompt_numbers
from ppolm.evaluation.alarms import Limits
from ppolm.evaluation.quality import quality_metrics
from ppolm.evaluation.verdict import Convergence, Performance, judge
from ppolm.measures.intervals import mean_error
from ppolm.ppo_trainer.generator import SequenceGenerator
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.ppo_trainer.step_metrics import table_metrics
from ppolm.reward_kl import add_kl_to_sa_pairs, adjust_rewards_with_kl
from ppolm.reward_kl.reward_normalizer import total
from ppolm.rewards.build import build_reward
from ppolm.rollout.generated_text import sample_rows
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling

if TYPE_CHECKING:
    from ppolm.config import PPOConfig
    from ppolm.ppo_trainer.ppo_trainer import PPOTrainer


class Evaluator:
    """Measures the policy on prompts it is not trained on, and judges the series of measurements."""

    def __init__(self, trainer: PPOTrainer, prompts: Sequence[Prompt]) -> None:
        self.trainer, self.prompts = trainer, list(prompts)
        self.limits = limits_of(trainer.config)
        self.judge = make_judge(trainer)
        self.history: list[dict[str, float]] = []
        self.samples: list[dict[str, Any]] = []
        """Prompts, responses and rewards of the last measurement."""
        self.scores: dict[str, list[float]] = {}
        """Per response of the last measurement: ``reward``, and ``judge`` if there is one."""
        self.first_scores: dict[str, list[float]] = {}
        """The same of the first evaluation, with which later ones are compared prompt by prompt."""
        self.clusters = prompt_numbers([prompt.content for prompt in self.prompts])
        """Which prompts are the same: their responses are one piece of evidence."""

    def measure(self, greedy: bool = False) -> dict[str, float]:
        """Reward, KL, entropy, value accuracy and text quality on the held-out prompts, sampled or most likely.

        The rollout has its own generator with a fixed seed, and nothing of the training state is touched: a run with
        evaluations trains exactly as one without.
        """
        trainer, config = self.trainer, self.trainer.config
        sampling = dataclasses.replace(Sampling.of(config), greedy=greedy)
        generator = Generator(
            trainer.generator.engine, trainer.models.setup, sampling, config.eval_seed, samples_per_prompt=1
        )
        pairs, texts = SequenceGenerator(generator, trainer.attributor).generate_sequences(self.prompts)
        rewarder = trainer.reward_computer
        failures, components = rewarder.failures, rewarder.components
        rewards = rewarder.compute_rewards(self.prompts, texts)
        parts = {f"reward/{name}": value for name, value in rewarder.components.items()}
        failed, rewarder.failures, rewarder.components = rewarder.failures - failures, failures, components
        scores = rewarder.normalize_rewards(rewards, pairs.ended, update=False)
        pairs = add_kl_to_sa_pairs(pairs, config.kl_estimator)
        pairs = adjust_rewards_with_kl(pairs, scores, trainer.kl.reward_coef, config.whiten_rewards)
        pairs = trainer.value_adder.add_values_to_sa_pairs(pairs)
        pairs = trainer.advantage_comp.add_advantages(pairs)
        entropy = trainer.models.policy.entropies(pairs.sequences, config.temperature, config.microbatch_tokens)
        metrics: dict[str, float] = {"step": trainer.step, "reward_failures": failed} | table_metrics(
            pairs, rewards, config.value_target
        )
        metrics |= parts if len(parts) > 1 else {}
        metrics["num_prompts"] = len(set(self.clusters.tolist()))
        metrics["entropy"] = float(entropy.double().mean())
        metrics["reference_surprise"] = -float(pairs.column("logprob_ref").double().mean())
        self.scores = {"reward": [total(reward) for reward in rewards]}
        if self.judge is not None:
            judged = self.scores["judge"] = [total(score) for score in self.judge.compute_rewards(self.prompts, texts)]
            metrics |= {"judge": statistics.fmean(judged), "judge_std": statistics.pstdev(judged)}
        for name, first in self.first_scores.items():
            change = np.subtract(self.scores[name], first)
            metrics[f"{name}_gain_error"] = mean_error(change, self.clusters)
        self.samples = sample_rows(texts, rewards)
        return metrics | quality_metrics(texts, [prompt.reference for prompt in self.prompts])

    def evaluate(self, metrics: Mapping[str, float]) -> tuple[Performance, Convergence]:
        """Add a measurement (at least ``avg_reward``) to the series and judge it."""
        if "avg_reward" not in metrics:
            raise ValueError(f"evaluate needs 'avg_reward' among the metrics; it got: {', '.join(metrics) or 'none'}")
        if not self.history:
            self.first_scores = self.scores
        self.history.append(dict(metrics))
        return judge(self.history, self.limits)


def limits_of(config: PPOConfig) -> Limits:
    """The limits that a configuration sets."""
    return Limits(
        patience=config.patience,
        min_delta=config.min_delta,
        reward_drop=config.collapse_reward_drop,
        kl_per_token=config.collapse_kl,
        entropy_share=config.collapse_entropy,
        length_ratio=config.collapse_length,
        judge_drop=config.judge_drop,
    )


def make_judge(trainer: PPOTrainer) -> RewardComputer | None:
    """The configured judge, held to the same checks as a reward."""
    name = trainer.config.judge
    if name is None:
        return None
    reward = build_reward(name, trainer.config, trainer.models.ensemble or trainer.models.reward)
    return RewardComputer({name: reward}, on_error=trainer.config.on_reward_error)
