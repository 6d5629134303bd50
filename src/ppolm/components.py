"""The components of a PPO trainer as protocols. Pass your own to ``PPOTrainer``: steps, metrics and checkpoints use it.

The trainer, the training loop, checkpoints and metrics use nothing else of a component.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ppolm.base_setup.model_setup import Models
from ppolm.config import PPOConfig
from ppolm.data.prompts import Prompt
from ppolm.experience_buffer import BatchedData
from ppolm.reward_kl.reward_adjuster import Score
from ppolm.rewards.occasion import Occasion
from ppolm.rewards.protocol import Rewards
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.sampling_base import Tokenizer
from ppolm.state import Stateful
from ppolm.token_attribution import SAPairs
from ppolm.training.mean_loss import MeanLoss


class TextGenerator(Stateful, Protocol):
    """Prompts in, sampled responses out."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back."""

    def generate(self, prompts: Sequence[Any]) -> tuple[list[GeneratedText], list[Tensor]]:
        """Responses and the log-probability of each of their tokens; the samples of one prompt are adjacent."""

    def fork(self, seed: int, greedy: bool = False) -> TextGenerator:
        """A copy with its own random numbers and one response per prompt, for evaluations."""

    def encode(self, prompt: Prompt, number: int) -> list[int]:
        """Token ids of a prompt; raises if it is empty or leaves no room for the response."""

    def fits(self, ids: Sequence[int]) -> bool:
        """Whether a prompt leaves room for max_new_tokens."""


class Attributor(Stateful, Protocol):
    """Builds the table of tokens with their log-probabilities under policy and reference."""

    @property
    def recomputes(self) -> bool:
        """Whether the policy's log-probabilities are recomputed instead of taken from the sampler."""

    def extract_pairs(self, text: Sequence[GeneratedText], logprobs: Sequence[Tensor]) -> SAPairs:
        """The table of the responses with ``logprob_policy``, ``logprob_ref`` and ``logprob_sampler``."""

    def observe(self, mismatch: float) -> None:
        """Record the mismatch between sampler and scorer in a training step; NaN if it could not be measured."""


class KLEstimator(Stateful, Protocol):
    """Estimates how far the policy has moved from its reference."""

    def add_kl_to_sa_pairs(self, sa_pairs: SAPairs) -> SAPairs:
        """Add ``kl``."""


class KLCoefficient(Stateful, Protocol):
    """The weight of the KL penalty, and where it is applied."""

    @property
    def coef(self) -> float:
        """The weight in this step."""

    @property
    def reward_coef(self) -> float:
        """The weight in the token rewards."""

    @property
    def loss_coef(self) -> float:
        """The weight in the policy loss."""

    def observe(self, kl: float, num_sequences: int) -> None:
        """Record the KL of a step; an adaptive weight follows it."""


class Rewarder(Stateful, Protocol):
    """Scores responses."""

    def compute_rewards(self, prompts: Sequence[Any], texts: Sequence[str]) -> Rewards | list[Score]:
        """A score per response."""

    def normalize_rewards(self, rewards: Sequence[Score], ended: Tensor, update: bool = True) -> list[Score]:
        """Scores as training uses them. ``update`` False leaves running statistics as they are, for evaluations."""

    def expect_prompts(self, prompts: Sequence[Prompt]) -> None:
        """Raise before the first step if these prompts lack a column that a reward asks for."""


class Adjuster(Stateful, Protocol):
    """Assigns scores to tokens and subtracts the KL penalty."""

    def adjust_rewards_with_kl(self, sa_pairs: SAPairs, rewards: Sequence[Score], kl_coef: float) -> SAPairs:
        """Add ``score`` and ``reward``."""


class ValueEstimator(Stateful, Protocol):
    """Estimates state values."""

    def add_values_to_sa_pairs(self, sa_pairs: SAPairs) -> SAPairs:
        """Add ``value``."""


class AdvantageEstimator(Stateful, Protocol):
    """Computes training targets from rewards and values."""

    def add_advantages(self, sa_pairs: SAPairs) -> SAPairs:
        """Add ``td_error``, ``advantage``, ``return`` and ``reward_to_go``."""


class Buffer(Stateful, Protocol):
    """Holds recent experience."""

    @property
    def evicted_tokens(self) -> int:
        """Tokens evicted for lack of room so far."""

    def __len__(self) -> int:
        """Tokens held."""

    def store(self, data: SAPairs) -> BatchedData:
        """Add a rollout and return everything held, as training data."""


class PolicyAndValueTrainer(Stateful, Protocol):
    """Updates both models."""

    def set_step(self, step: int, total_steps: int | None) -> None:
        """Begin PPO step ``step`` (from 0)."""

    def train_value_model(self, sa_pairs: BatchedData) -> MeanLoss:
        """PPO epochs over minibatches for the value model."""

    def train_policy_model(self, sa_pairs: BatchedData) -> MeanLoss:
        """PPO epochs over minibatches for the policy."""

    def metrics(self) -> Mapping[str, float]:
        """Further metrics of a step, such as learning rates."""


@runtime_checkable
class Adjustable(Protocol):
    """A component with settings that a callback may change in a run under way. Its state contains their values."""

    def adjustable(self) -> Mapping[str, float]:
        """These settings by name, with their present values."""

    def adjust(self, name: str, value: float) -> None:
        """Use another value from the next step on; it has been checked."""


class Trainer(Protocol):
    """The part of a trainer that evaluations and the training loop use. ``PPOTrainer`` implements it."""

    config: PPOConfig
    models: Models
    step: int
    total_steps: int | None
    reward_failures: int
    occasion: Occasion

    @property
    def generator(self) -> TextGenerator:
        """Samples responses."""

    @property
    def attributor(self) -> Attributor:
        """Scores their tokens."""

    @property
    def kl(self) -> KLCoefficient:
        """The KL coefficient."""

    @property
    def kl_divergence(self) -> KLEstimator:
        """Adds KL to the table."""

    @property
    def reward_computer(self) -> Rewarder:
        """Scores responses."""

    @property
    def reward_adjuster(self) -> Adjuster:
        """Makes token rewards from scores and KL."""

    @property
    def value_adder(self) -> ValueEstimator:
        """Adds values."""

    @property
    def advantage_comp(self) -> AdvantageEstimator:
        """Adds advantages and returns."""

    @property
    def buffer(self) -> Buffer:
        """Holds recent tables."""

    @property
    def model_trainer(self) -> PolicyAndValueTrainer:
        """Updates both models."""

    @property
    def make_evaluator(self) -> Callable[..., Any] | None:
        """Builds an Evaluator from this trainer and the held-out prompts; None for the default one."""

    @property
    def judge(self) -> Rewarder | None:
        """The reward that evaluations measure and training never sees."""

    def ppo_step(self, prompts: Sequence[Any]) -> dict[str, Any]:
        """One complete PPO step."""

    def components(self) -> Mapping[str, Stateful]:
        """Every component by name: a checkpoint saves their states."""
