"""PPOTrainer: the orchestrator. ``ppo_step`` follows the data flow of the design documents, one line per arrow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from ppolm.advantage.advantage_comp import AdvantageComp, Advantages, Returns, TDErrors
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.components import (
    Adjuster,
    AdvantageEstimator,
    Attributor,
    Buffer,
    KLCoefficient,
    KLEstimator,
    PolicyAndValueTrainer,
    Rewarder,
    TextGenerator,
    ValueEstimator,
)
from ppolm.config import PPOConfig
from ppolm.data.prompts import Prompt, as_prompts
from ppolm.engines.build_engine import check_engine, release_engine
from ppolm.evaluation.evaluator import Evaluator
from ppolm.experience_buffer import ExperienceBuffer
from ppolm.hooks.check_callbacks import checked_callbacks
from ppolm.hooks.loggers import check_loggers
from ppolm.ppo_trainer.default_components import DefaultComponents
from ppolm.ppo_trainer.generator import SequenceGenerator
from ppolm.ppo_trainer.model_trainer import ModelTrainer
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.ppo_trainer.step_facts import step_facts
from ppolm.ppo_trainer.step_metrics import Stopwatch, step_metrics
from ppolm.ppo_trainer.value_adder import ValueAdder
from ppolm.reward_kl import KLDivergence, RewardAdjuster
from ppolm.reward_kl.kl_controller import KLController
from ppolm.rewards.build import named_rewards
from ppolm.rewards.occasion import Occasion
from ppolm.rewards.protocol import failed_scores
from ppolm.rollout.generator import Generator
from ppolm.runs.results import TrainingResults
from ppolm.runs.run_start import claim_run
from ppolm.runs.training_run import TrainingRun
from ppolm.state import Stateful
from ppolm.storage.starting_point import started
from ppolm.token_attribution import SAPairs
from ppolm.token_attribution.token_attribution import TokenAttributor
from ppolm.training.mean_loss import MeanLoss


class PPOTrainer:
    """Coordinates all components. Each can be replaced: ``ppolm.components`` has the protocol it must implement."""

    def __init__(
        self,
        config: PPOConfig,
        *,
        reward: Any = None,
        models: Models | None = None,
        generator: TextGenerator | None = None,
        attributor: Attributor | None = None,
        kl: KLCoefficient | None = None,
        kl_divergence: KLEstimator | None = None,
        reward_computer: Rewarder | None = None,
        reward_adjuster: Adjuster | None = None,
        value_adder: ValueEstimator | None = None,
        td_error: TDErrors | None = None,
        gae_advantage: Advantages | None = None,
        return_calculator: Returns | None = None,
        advantage_comp: AdvantageEstimator | None = None,
        buffer: Buffer | None = None,
        model_trainer: PolicyAndValueTrainer | None = None,
        evaluator: Callable[[PPOTrainer, Sequence[Prompt]], Evaluator] | None = None,
    ) -> None:
        """``reward`` overrides the configured one: ``(prompts, responses, **columns)``, or several by name.

        ``evaluator`` builds an Evaluator from this trainer and the held-out prompts, once ``train`` knows them.
        """
        config = started(config.anchored())  # paths stored with a run must resolve from any folder
        own = None if reward is None else named_rewards(reward)
        if own is not None:
            config = dataclasses.replace(config, reward=tuple(own))
        check_engine(config)
        check_loggers(config)
        self.models = models = models or setup_models(config)
        # The run stores the precision that is actually used, even if the setting was auto.
        self.config = config = dataclasses.replace(config, dtype=models.setup.precision["weights"])
        self.occasion = Occasion(config.run_name)
        """What responses are scored for at the moment."""
        made = DefaultComponents(config, models, own, self.occasion)
        # Attributes are typed as the default components; a replacement only has to satisfy its protocol. Each is
        # compared with None, because an empty buffer is falsy.
        self.generator = cast(Generator, made.generator() if generator is None else generator)
        self.attributor = cast(TokenAttributor, made.attributor() if attributor is None else attributor)
        elsewhere = config.engine == "vllm"  # sampled by another program, perhaps from older weights
        caps = (config.importance_cap, config.importance_sequence_cap) if elsewhere else (None, None)
        self.sequence_generator = SequenceGenerator(self.generator, self.attributor, *caps)
        if kl is None and isinstance(model_trainer, ModelTrainer):
            kl = model_trainer.kl  # rewards and loss share one coefficient
        self.kl = cast(KLController, made.kl() if kl is None else kl)
        self.kl_divergence = cast(KLDivergence, made.kl_divergence() if kl_divergence is None else kl_divergence)
        self.reward_computer = cast(
            RewardComputer, made.reward_computer() if reward_computer is None else reward_computer
        )
        self.reward_adjuster = cast(
            RewardAdjuster, made.reward_adjuster() if reward_adjuster is None else reward_adjuster
        )
        self.value_adder = cast(ValueAdder, made.value_adder() if value_adder is None else value_adder)
        stages = (td_error, gae_advantage, return_calculator)
        self.advantage_comp = cast(
            AdvantageComp, made.advantage_comp(*stages) if advantage_comp is None else advantage_comp
        )
        self.buffer = cast(ExperienceBuffer, made.buffer() if buffer is None else buffer)
        self.model_trainer = cast(ModelTrainer, made.model_trainer(self.kl) if model_trainer is None else model_trainer)
        self.make_evaluator = evaluator
        self.step = 0
        self.total_steps: int | None = None
        """PPO steps of the whole run, once ``train`` knows them; the learning-rate schedule ends there."""
        self.reward_failures = 0
        """Training scores replaced by default_reward so far."""

    @cached_property
    def judge(self) -> Rewarder | None:
        """The reward that evaluations measure and training never sees; built when first used."""
        return DefaultComponents(self.config, self.models, occasion=self.occasion).judge()

    def ppo_step(self, prompts: Sequence[Any]) -> dict[str, Any]:
        """One complete PPO step: roll out, score, estimate advantages, update both models."""
        prompts, clock = as_prompts(prompts), Stopwatch()
        self.model_trainer.set_step(self.step, self.total_steps)
        self.occasion.begin("training", self.step + 1)
        with clock("generate"):
            sa_pairs, texts = self.sequence_generator.generate_sequences(prompts)
        with clock("reward"):
            rewards = self.reward_computer.compute_rewards(prompts, texts)
            scores = self.reward_computer.normalize_rewards(rewards, sa_pairs.ended)
        sa_pairs = self.kl_divergence.add_kl_to_sa_pairs(sa_pairs)
        sa_pairs = self.reward_adjuster.adjust_rewards_with_kl(sa_pairs, scores, self.kl.reward_coef)
        with clock("value"):
            sa_pairs = self.value_adder.add_values_to_sa_pairs(sa_pairs)
        sa_pairs = self.advantage_comp.add_advantages(sa_pairs)  # TD errors, GAE, reward-to-go
        batch = self.buffer.store(sa_pairs)
        with clock("train_value"):
            value_loss = self.model_trainer.train_value_model(batch)
        with clock("train_policy"):
            warming_up = self.step < self.config.value_warmup_steps
            policy_loss = MeanLoss() if warming_up else self.model_trainer.train_policy_model(batch)
        self.step += 1
        self._agree(sa_pairs, rewards)
        self.reward_failures += failed_scores(rewards)
        metrics = step_metrics(self, sa_pairs, rewards, policy_loss, value_loss) | clock.seconds
        self.kl.observe(metrics["kl"], sa_pairs.num_sequences)
        self.attributor.observe(metrics["sampler_mismatch"])
        return {
            "generated_texts": texts,
            "rewards": rewards,
            "value_loss": value_loss,
            "policy_loss": policy_loss,
            "sa_pairs": sa_pairs,
            "metrics": metrics,
        }

    def _agree(self, pairs: SAPairs, rewards: Sequence[Any]) -> None:
        """Of several processes: raise in the step in which they have drifted apart, not when it shows."""
        ranks = self.models.setup.ranks
        if ranks.shares:
            ranks.agree_on(f" in step {self.step}", step_facts(self, pairs, rewards))

    def components(self) -> Mapping[str, Stateful]:
        """Every component by name: checkpoints save their states, and abandoning a step restores them."""
        return {
            "generator": self.generator,
            "attributor": self.attributor,
            "kl": self.kl,
            "kl_divergence": self.kl_divergence,
            "reward_computer": self.reward_computer,
            "reward_adjuster": self.reward_adjuster,
            "value_adder": self.value_adder,
            "advantage_comp": self.advantage_comp,
            "buffer": self.buffer,
            "model_trainer": self.model_trainer,
        }

    def train(
        self,
        prompts: Sequence[Any],
        num_epochs: int | None = None,
        *,
        eval_prompts: Sequence[Any] | None = None,
        resume: str | Path | None = None,
        callbacks: Sequence[Any] = (),
    ) -> TrainingResults:
        """PPO steps over the prompts, in a run folder, with evaluation, checkpoints and early stop.

        Without ``eval_prompts`` a share of the prompts is held out (``eval_fraction``). ``resume`` is a run folder, or
        one of its checkpoints, to continue. ``callbacks`` are told of steps, evaluations and checkpoints; they may stop
        the run and change settings (docs/callbacks.md). Ctrl-C or SIGTERM ends it with ``Stopped``, a
        KeyboardInterrupt, once all finished steps are saved.
        """
        epochs = self.config.num_epochs if num_epochs is None else num_epochs
        checked_callbacks(callbacks)
        try:
            with claim_run(self.config, resume, self.models.setup.ranks) as claim:
                return TrainingRun(self, prompts, epochs, eval_prompts, resume, claim, callbacks).run()
        finally:
            self.release()

    def release(self) -> None:
        """Remove what sampling has put elsewhere, such as adapters in servers. It can be used again afterwards."""
        release_engine(self.generator)
