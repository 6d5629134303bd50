"""The default components of a trainer, built from its configuration."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from ppolm.advantage import AdvantageComp
from ppolm.advantage.advantage_comp import Advantages, Returns, TDErrors
from ppolm.base_setup.model_setup import Models
from ppolm.components import KLCoefficient
from ppolm.config import PPOConfig
from ppolm.engines.build_engine import build_generator
from ppolm.experience_buffer import ExperienceBuffer
from ppolm.ppo_trainer.model_trainer import ModelTrainer
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.ppo_trainer.value_adder import ValueAdder
from ppolm.reward_kl import KLDivergence, RewardAdjuster
from ppolm.reward_kl.kl_controller import KLController
from ppolm.rewards.build import build_reward, build_rewards
from ppolm.rewards.occasion import Occasion
from ppolm.rollout.generator import Generator
from ppolm.token_attribution.token_attribution import TokenAttributor

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DefaultComponents:
    """Builds each component on request."""

    config: PPOConfig
    models: Models
    own_rewards: Any = None
    """The user's own rewards, by name; they replace the configured ones."""
    occasion: Occasion | None = None
    """Where the trainer says what is being scored."""

    def generator(self) -> Generator:
        """Samples from the policy, with the configured engine."""
        return build_generator(self.config, self.models.policy)

    def attributor(self) -> TokenAttributor:
        """Scores responses with policy and reference."""
        config, models = self.config, self.models
        # Replayed rollouts in the update would hide the mismatch between sampler and scorer, and the numbers of another
        # library are never those that the update computes, however close they were in the last step.
        watched = config.replay_rollouts == 1 and config.engine == "local"
        recompute = "always" if config.recompute_logprobs == "auto" and not watched else config.recompute_logprobs
        return TokenAttributor(models.policy, models.sft, config.temperature, config.microbatch_tokens, recompute)

    def kl(self) -> KLController:
        """The KL coefficient, fixed or adaptive."""
        config = self.config
        steering = (config.adaptive_kl, config.kl_target, config.kl_horizon)
        return KLController(config.kl_coef, config.kl_placement, *steering)

    def kl_divergence(self) -> KLDivergence:
        """KL per token."""
        return KLDivergence(self.config.kl_estimator)

    def reward_computer(self) -> RewardComputer:
        """The configured rewards, or the user's own."""
        config, models = self.config, self.models
        if self.own_rewards is None and models.reward and not models.reward.trained:
            log.warning(
                "The reward model is untrained: its scores are arbitrary. Set reward_model to a trained one, or pass a "
                "reward function."
            )
        return RewardComputer(
            build_rewards(config, models.ensemble or models.reward, self.own_rewards, self.occasion),
            config.reward_weights,
            config.normalize_rewards,
            config.missing_eos_penalty,
            config.on_reward_error,
            config.default_reward,
            models.setup.ranks,
        )

    def judge(self) -> RewardComputer | None:
        """The configured judge, with the same checks as a reward."""
        config, models = self.config, self.models
        if config.judge is None:
            return None
        reward = build_reward(config.judge, config, models.ensemble or models.reward, self.occasion)
        return RewardComputer({config.judge: reward}, on_error=config.on_reward_error, ranks=models.setup.ranks)

    def reward_adjuster(self) -> RewardAdjuster:
        """Token rewards from scores and KL."""
        return RewardAdjuster(self.config.whiten_rewards)

    def value_adder(self) -> ValueAdder:
        """State values."""
        return ValueAdder(self.models.value, self.config.microbatch_tokens)

    def advantage_comp(
        self,
        td_error: TDErrors | None = None,
        gae_advantage: Advantages | None = None,
        return_calculator: Returns | None = None,
    ) -> AdvantageComp:
        """TD errors, GAE and reward-to-go; a stage passed in replaces the default one."""
        stages = (td_error, gae_advantage, return_calculator)
        return AdvantageComp(self.config.gamma, self.config.lam, self.config.whiten_advantages, *stages)

    def buffer(self) -> ExperienceBuffer:
        """Holds the newest rollouts."""
        return ExperienceBuffer(self.config.buffer_capacity, self.config.replay_rollouts)

    def model_trainer(self, kl: KLCoefficient) -> ModelTrainer:
        """Updates policy and value model."""
        return ModelTrainer(self.models.policy, self.models.value, self.config, kl)
