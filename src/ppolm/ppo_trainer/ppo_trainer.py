"""PPOTrainer: the orchestrator. ``ppo_step`` is the data flow of the user's documents, a line per arrow."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppolm.advantage import AdvantageComp
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.data.prompts import Prompt, as_prompts
from ppolm.experience_buffer import ExperienceBuffer
from ppolm.ppo_trainer.generator import SequenceGenerator
from ppolm.ppo_trainer.model_trainer import ModelTrainer
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.ppo_trainer.step_metrics import Stopwatch, step_metrics
from ppolm.ppo_trainer.value_adder import ValueAdder
from ppolm.reward_kl import add_kl_to_sa_pairs, adjust_rewards_with_kl
from ppolm.reward_kl.kl_controller import KLController
from ppolm.rewards.build import build_rewards, named_rewards
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from ppolm.token_attribution.token_attribution import TokenAttributor

if TYPE_CHECKING:
    from ppolm.evaluation.evaluator import Evaluator
    from ppolm.runs.results import TrainingResults

log = logging.getLogger(__name__)


class PPOTrainer:
    """Coordinates all components. Each can be replaced by passing another one with the same methods."""

    def __init__(
        self,
        config: PPOConfig,
        *,
        reward: Any = None,
        models: Models | None = None,
        generator: Generator | None = None,
        attributor: TokenAttributor | None = None,
        reward_computer: RewardComputer | None = None,
        value_adder: ValueAdder | None = None,
        advantage_comp: AdvantageComp | None = None,
        buffer: ExperienceBuffer | None = None,
        model_trainer: ModelTrainer | None = None,
        evaluator: Callable[[PPOTrainer, Sequence[Prompt]], Evaluator] | None = None,
    ) -> None:
        """``reward`` takes the place of the configured one: ``(prompts, responses, **columns)``, or several by name.

        ``evaluator`` makes an Evaluator of this trainer and the held-out prompts, once ``train`` knows them.
        """
        config = config.anchored()  # what is noted with a run is found from any folder
        if reward is not None:
            reward = named_rewards(reward)
            config = dataclasses.replace(config, reward=tuple(reward))
        self.models = models or setup_models(config)
        # What was computed with is noted with the run, and not only that it was left open.
        self.config = config = dataclasses.replace(config, dtype=self.models.setup.precision["weights"])
        setup, policy, sft, value = self.models.setup, self.models.policy, self.models.sft, self.models.value
        budget = config.microbatch_tokens
        kl = KLController(config.kl_coef, config.kl_placement, config.adaptive_kl, config.kl_target, config.kl_horizon)
        self.kl = kl if model_trainer is None else model_trainer.kl
        self.generator = generator or Generator(
            policy, setup, Sampling.of(config), config.seed, config.samples_per_prompt
        )
        # Older rollouts in the update would hide how far sampler and scorer are apart.
        watched = config.recompute_logprobs != "auto" or config.replay_rollouts == 1
        recompute = config.recompute_logprobs if watched else "always"
        self.attributor = attributor or TokenAttributor(policy, sft, config.temperature, budget, recompute)
        self.sequence_generator = SequenceGenerator(self.generator, self.attributor)
        self.reward_computer = reward_computer or RewardComputer(
            build_rewards(config, self.models.ensemble or self.models.reward, reward),
            config.reward_weights,
            config.normalize_rewards,
            config.missing_eos_penalty,
            config.on_reward_error,
            config.default_reward,
        )
        self.value_adder = value_adder or ValueAdder(value, budget)
        self.advantage_comp = advantage_comp or AdvantageComp(config.gamma, config.lam, config.whiten_advantages)
        # An empty buffer is false, and still the one to use.
        self.buffer = ExperienceBuffer(config.buffer_capacity, config.replay_rollouts) if buffer is None else buffer
        self.model_trainer = model_trainer or ModelTrainer(policy, value, config, self.kl)
        self.make_evaluator = evaluator
        self.step = 0
        self.total_steps: int | None = None
        """PPO steps of the whole run, once ``train`` knows them; the learning-rate schedule ends there."""
        if reward is None and reward_computer is None and self.models.reward and not self.models.reward.trained:
            log.warning(
                "The reward model is untrained: its scores are arbitrary. Set reward_model to a trained one, or pass a "
                "reward function."
            )

    def ppo_step(self, prompts: Sequence[Any]) -> dict[str, Any]:
        """One complete PPO step: roll out, score, estimate advantages, update both models."""
        config, prompts, clock = self.config, as_prompts(prompts), Stopwatch()
        self.model_trainer.set_step(self.step, self.total_steps)
        with clock("generate"):
            sa_pairs, texts = self.sequence_generator.generate_sequences(prompts)
        with clock("reward"):
            rewards = self.reward_computer.compute_rewards(prompts, texts)
            scores = self.reward_computer.normalize_rewards(rewards, sa_pairs.ended)
        sa_pairs = add_kl_to_sa_pairs(sa_pairs, config.kl_estimator)
        sa_pairs = adjust_rewards_with_kl(sa_pairs, scores, self.kl.reward_coef, config.whiten_rewards)
        with clock("value"):
            sa_pairs = self.value_adder.add_values_to_sa_pairs(sa_pairs)
        sa_pairs = self.advantage_comp.add_advantages(sa_pairs)  # TD errors, GAE, reward-to-go
        batch = self.buffer.store(sa_pairs)
        with clock("train_value"):
            value_loss = self.model_trainer.train_value_model(batch)
        with clock("train_policy"):
            warming_up = self.step < config.value_warmup_steps
            policy_loss = math.nan if warming_up else self.model_trainer.train_policy_model(batch)
        self.step += 1
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

    def train(
        self,
        prompts: Sequence[Any],
        num_epochs: int | None = None,
        *,
        eval_prompts: Sequence[Any] | None = None,
        resume: str | Path | None = None,
    ) -> TrainingResults:
        """PPO steps over the prompts, in a run folder, with evaluation, checkpoints and early stop.

        Without ``eval_prompts`` a share of the prompts is held out (``eval_fraction``). ``resume`` is a run folder, or
        one of its checkpoints, to go on from. Ctrl-C or SIGTERM ends it with ``Stopped``, a KeyboardInterrupt, once all
        finished steps are saved.
        """
        from ppolm.runs.training_run import TrainingRun, claim_run

        epochs = self.config.num_epochs if num_epochs is None else num_epochs
        with claim_run(self.config, resume) as claim:
            return TrainingRun(self, prompts, epochs, eval_prompts, resume, claim).run()
