"""The Evaluator: held-out prompts, always with the same random numbers, and a verdict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from ppolm.components import Trainer
from ppolm.config import PPOConfig
from ppolm.data.prompts import Prompt
from ppolm.data.same_text import prompt_numbers
from ppolm.evaluation.alarms import Limits
from ppolm.evaluation.measurement import Measurement
from ppolm.evaluation.quality import quality_metrics
from ppolm.evaluation.table_metrics import table_metrics
from ppolm.evaluation.verdict import Convergence, Performance, judge
from ppolm.measures.intervals import mean_error
from ppolm.reward_kl.reward_adjuster import Score
from ppolm.reward_kl.reward_normalizer import total
from ppolm.rewards.protocol import failed_scores, reward_components
from ppolm.rollout.generated_text import sample_rows
from ppolm.state import State
from ppolm.token_attribution import SAPairs


class Evaluator:
    """Measures the policy on prompts it is not trained on, and judges the series of measurements."""

    def __init__(self, trainer: Trainer, prompts: Sequence[Prompt]) -> None:
        self.trainer, self.prompts = trainer, list(prompts)
        self.limits = limits_of(trainer.config)
        self.history: list[dict[str, float]] = []
        self.first_scores: dict[str, list[float]] = {}
        """The scores of the first evaluation, with which later ones are compared prompt by prompt."""
        self.clusters = prompt_numbers([prompt.content for prompt in self.prompts])
        """Which prompts are the same: their responses are one piece of evidence."""

    def measure(self, greedy: bool = False) -> Measurement:
        """Reward, KL, entropy, value accuracy and text quality on the held-out prompts, sampled or most likely.

        The rollout has its own generator with a fixed seed, and nothing of the training state is touched: a run with
        evaluations trains exactly as one without.
        """
        trainer = self.trainer
        trainer.occasion.begin("evaluation", trainer.step)
        texts, logprobs = trainer.generator.fork(trainer.config.eval_seed, greedy).generate(self.prompts)
        pairs = trainer.attributor.extract_pairs(texts, logprobs)
        rewards = trainer.reward_computer.compute_rewards(self.prompts, texts)
        scores = trainer.reward_computer.normalize_rewards(rewards, pairs.ended, update=False)
        pairs = trainer.kl_divergence.add_kl_to_sa_pairs(pairs)
        pairs = trainer.reward_adjuster.adjust_rewards_with_kl(pairs, scores, trainer.kl.reward_coef)
        pairs = trainer.value_adder.add_values_to_sa_pairs(pairs)
        pairs = trainer.advantage_comp.add_advantages(pairs)
        metrics = self._table_metrics(pairs, rewards)
        found = {"reward": [total(reward) for reward in rewards]}
        if trainer.judge is not None:
            judged = found["judge"] = [total(score) for score in trainer.judge.compute_rewards(self.prompts, texts)]
            metrics |= {"judge": statistics.fmean(judged), "judge_std": statistics.pstdev(judged)}
        for name, first in self.first_scores.items():
            metrics[f"{name}_gain_error"] = mean_error(np.subtract(found[name], first), self.clusters)
        metrics |= quality_metrics(texts, [prompt.reference for prompt in self.prompts])
        return Measurement(metrics, found, sample_rows(texts, rewards))

    def _table_metrics(self, pairs: SAPairs, rewards: Sequence[Score]) -> dict[str, float]:
        """What the table of an evaluation says, and what the policy itself says of it."""
        policy, config = self.trainer.models.policy, self.trainer.config
        entropy = policy.entropies(pairs.sequences, config.temperature, config.microbatch_tokens)
        return {
            "step": self.trainer.step,
            "reward_failures": failed_scores(rewards),
            **table_metrics(pairs, rewards, config.value_target),
            **reward_components(rewards),
            "num_prompts": len(set(self.clusters.tolist())),
            "entropy": float(entropy.double().mean()),
            "reference_surprise": -float(pairs.column("logprob_ref").double().mean()),
        }

    def evaluate(self, metrics: Measurement | Mapping[str, float]) -> tuple[Performance, Convergence]:
        """Add a measurement, or its metrics (at least ``avg_reward``), to the series and judge it."""
        measured = metrics if isinstance(metrics, Measurement) else Measurement(dict(metrics))
        if "avg_reward" not in measured.metrics:
            named = ", ".join(measured.metrics) or "none"
            raise ValueError(f"evaluate needs 'avg_reward' among the metrics; it got: {named}")
        if not self.history:
            self.first_scores = measured.scores
        self.history.append(dict(measured.metrics))
        return judge(self.history, self.limits)

    def state_dict(self) -> State:
        """The series of evaluations, and what the first one scored."""
        return {"history": self.history, "first_scores": self.first_scores}

    def load_state_dict(self, state: State) -> None:
        """Continue a series."""
        self.history, self.first_scores = list(state["history"]), dict(state["first_scores"])


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
