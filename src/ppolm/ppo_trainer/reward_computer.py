"""Scores responses with the rewards of the run; every score is checked before it is used."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ppolm.data.prompts import Prompt, as_prompts
from ppolm.errors import RewardError
from ppolm.ranks import Ranks
from ppolm.reward_kl.reward_adjuster import Score
from ppolm.reward_kl.reward_normalizer import RewardNormalizer, total
from ppolm.rewards.build import weighted_sum
from ppolm.rewards.function_reward import FunctionReward
from ppolm.rewards.protocol import Reward, Rewards, scores_or_errors
from ppolm.rollout.generated_text import GeneratedText
from ppolm.state import State

log = logging.getLogger(__name__)


TAKEN = frozenset({"prompts", "responses", "self"})
"""Names of a reward's own arguments: data columns with these names are not passed on."""


class RewardComputer:
    """The weighted sum of one or several rewards, and its normalisation for training."""

    def __init__(
        self,
        rewards: Mapping[str, Reward],
        weights: Sequence[float] = (),
        normalize: str = "none",
        missing_eos_penalty: float = 0.0,
        on_error: str = "raise",
        default_reward: float = 0.0,
        ranks: Ranks | None = None,
    ) -> None:
        """``ranks``: of several processes the first asks functions, endpoints and people, once for all of them."""
        self.ranks = ranks or Ranks()
        self.rewards = dict(rewards)
        self.weights = list(weights) or [1.0] * len(self.rewards)
        self.normalizer = RewardNormalizer(normalize)
        self.missing_eos_penalty = missing_eos_penalty
        self.on_error, self.default_reward = on_error, default_reward
        self.unanswered = dict.fromkeys(self.rewards, 0)
        """Failed scores so far of each reward that has not returned a valid one yet."""

    def expect_prompts(self, prompts: Sequence[Prompt]) -> None:
        """Raise before the first step if a function asks for a data column that no prompt has."""
        names = {name for prompt in prompts for name in prompt.columns} - TAKEN
        for reward in self.rewards.values():
            if isinstance(reward, FunctionReward):
                reward.expect_columns(names)

    def compute_rewards(self, prompts: Sequence[Any], texts: Sequence[str] | None = None) -> Rewards:
        """A score per response. A Generator's texts carry their prompts, so ``compute_rewards(texts)`` is enough."""
        if texts is None:
            prompts, texts = (), prompts
        contents, columns = _prompts_of(prompts, texts)
        found = {name: self._scores(name, reward, contents, texts, columns) for name, reward in self.rewards.items()}
        means = {name: sum(map(total, scores)) / len(scores) for name, (scores, _) in found.items()}
        parts = (scores for scores, _ in found.values())
        sums = [weighted_sum(scores, self.weights) for scores in zip(*parts, strict=True)]
        return Rewards(sums, means, failed=sum(failed for _, failed in found.values()))

    def _scores(
        self, name: str, reward: Reward, prompts: list[Any], texts: Sequence[str], columns: dict[str, list[Any]]
    ) -> tuple[list[Score], int]:
        """The scores of one reward, and how many of them were replaced by ``default_reward``."""
        if getattr(reward, "shares_passes", False):
            answers = scores_or_errors(reward, name, prompts, texts, columns, caught=RewardError)
        else:
            answers = self.ranks.once(lambda: scores_or_errors(reward, name, prompts, texts, columns))
        errors = [answer for answer in answers if isinstance(answer, RewardError)]
        if errors and self.on_error == "raise":
            hint = "Fix the reward, or set on_reward_error: default to continue with default_reward."
            raise RewardError(f"{errors[0]} {hint}") from errors[0].__cause__
        if len(errors) < len(answers):
            self.unanswered.pop(name, None)
        elif name in self.unanswered:
            self._refuse_silence(name, errors)
        if errors:
            level = logging.ERROR if len(errors) == len(answers) > 1 else logging.WARNING
            log.log(level, "%d of %d scores set to %g: %s", len(errors), len(answers), self.default_reward, errors[0])
        scores = [self.default_reward if isinstance(answer, RewardError) else answer for answer in answers]
        return scores, len(errors)

    def _refuse_silence(self, name: str, errors: Sequence[RewardError]) -> None:
        """Raise if every score since the start has failed: the fault is then not in single rows."""
        self.unanswered[name] += len(errors)
        if self.unanswered[name] > 1:
            raise RewardError(
                f"Reward {name} has given no score yet: every one of its first {self.unanswered[name]} failed, and "
                "on_reward_error: default is for single ones. Fix the reward (its module, connection, address or "
                f"reward_timeout). The first error: {errors[0]}"
            ) from errors[0].__cause__

    def normalize_rewards(self, rewards: Sequence[Score], ended: Tensor, update: bool = True) -> list[Score]:
        """Scores as training uses them: normalised, then reduced by ``missing_eos_penalty`` where EOS is missing.

        The penalty is applied last so that it is as large as configured, whatever the scale of the scores.
        """
        scores = self.normalizer.normalize(rewards, update)
        if not self.missing_eos_penalty:
            return scores
        return [
            score if has_eos else weighted_sum([score, -self.missing_eos_penalty], [1.0, 1.0])
            for score, has_eos in zip(scores, ended.tolist(), strict=True)
        ]

    def state_dict(self) -> State:
        """The statistics used for normalisation."""
        return {"normalizer": self.normalizer.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Continue with saved statistics."""
        self.normalizer.load_state_dict(state["normalizer"])


def _prompts_of(prompts: Sequence[Any], texts: Sequence[str]) -> tuple[list[Any], dict[str, list[Any]]]:
    """The prompt of each response, and the data columns with one value per response."""
    if not texts:
        raise RewardError("There are no responses to score.")
    if all(isinstance(text, GeneratedText) for text in texts):
        owners = [text.prompt for text in texts]  # type: ignore[attr-defined]
    elif not prompts:
        return [""] * len(texts), {}
    else:
        owners = as_prompts(prompts)
        if len(owners) != len(texts):
            raise RewardError(f"{len(owners)} prompts for {len(texts)} responses: give one prompt per response.")
    names = sorted({name for owner in owners for name in owner.columns} - TAKEN)
    columns = {name: [owner.columns.get(name) for owner in owners] for name in names}
    return [owner.content for owner in owners], columns
