"""Building rewards from their names in the configuration, and their weighted sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ppolm.config import PPOConfig
from ppolm.embedded.world.gold import gold_reward
from ppolm.errors import ConfigError, RewardError
from ppolm.models import RewardEnsemble, RewardModel
from ppolm.reward_kl.reward_adjuster import Score
from ppolm.rewards.function_reward import FunctionReward, load_function
from ppolm.rewards.http_reward import HTTPReward
from ppolm.rewards.occasion import Occasion
from ppolm.rewards.protocol import Reward


def named_rewards(own: Any) -> dict[str, Any]:
    """One or several rewards passed by the user, by name."""
    several = own if isinstance(own, (list, tuple)) else [own]
    named = (
        dict(own)
        if isinstance(own, Mapping)
        else {getattr(one, "__name__", type(one).__name__): one for one in several}
    )
    if not isinstance(own, Mapping) and len(named) < len(several):
        raise RewardError("Two rewards have the same name. Give them names: {'first': f, 'second': g}.")
    for name, function in named.items():
        if not callable(function):
            raise RewardError(f"reward {name} is {type(function).__name__}, expected a function (prompts, responses).")
    return named


def build_rewards(
    config: PPOConfig,
    reward_model: RewardModel | RewardEnsemble | None,
    own: Mapping[str, Any] | None = None,
    occasion: Occasion | None = None,
) -> dict[str, Reward]:
    """The rewards passed by the user if there are any, else the configured ones, by name."""
    if own is not None:
        return {name: FunctionReward(function, name, config.reward_timeout) for name, function in own.items()}
    return {
        label: build_reward(name, config, reward_model, occasion)
        for label, name in zip(labels(config.reward), config.reward, strict=True)
    }


def labels(names: Sequence[str]) -> list[str]:
    """The names of rewards in metrics: without folders, unless two names would then be the same."""
    short = [name if "://" in name else name.rpartition("/")[2] for name in names]
    return [label if short.count(label) == 1 else name for label, name in zip(short, names, strict=True)]


def build_reward(
    name: str,
    config: PPOConfig,
    reward_model: RewardModel | RewardEnsemble | None,
    occasion: Occasion | None = None,
) -> Reward:
    """One reward: model, human, gold, http(s)://..., module:function or path/file.py:function.

    ``occasion`` is where the caller says what is being scored, for people who are asked about it.
    """
    if name == "model":
        if reward_model is None:
            raise RewardError("Reward 'model' is configured, but no reward model is loaded.")
        refuse_long_responses(config.max_new_tokens, reward_model)
        return ModelReward(reward_model)
    if name == "human":
        return build_human_reward(config, reward_model, occasion or Occasion(config.run_name))
    if name == "gold":
        return FunctionReward(gold_reward, name, config.reward_timeout)
    if name.startswith(("http://", "https://")):
        return HTTPReward(name, config.reward_timeout, config.reward_retries)
    if name.endswith(".py"):
        raise RewardError(f"Reward {name!r} names a file but no function. Write {name}:function.")
    if ":" in name:
        return FunctionReward(load_function(name), name, config.reward_timeout)
    raise RewardError(
        f"Reward {name!r} is not understood. Expected model, human, module:function, path/file.py:function, "
        "http(s)://..., or gold for posts of the embedded world. "
        "(One that was passed to PPOTrainer from Python is known only there: name it with --reward.)"
    )


def refuse_long_responses(max_new_tokens: int, reward_model: RewardModel | RewardEnsemble) -> None:
    """Raise if a response may be longer than a reward model was trained to read, which would stop the run."""
    for member in getattr(reward_model, "members", [reward_model]):
        if member.max_tokens is not None and max_new_tokens >= member.max_tokens:
            raise ConfigError(
                f"max_new_tokens is {max_new_tokens}, but the reward model {member.folder} reads at most "
                f"{member.max_tokens} tokens, some of them of the prompt. Set max_new_tokens to "
                f"{member.max_tokens - 1} or less, or train the reward model again with a larger max_tokens."
            )


def build_human_reward(
    config: PPOConfig, reward_model: RewardModel | RewardEnsemble | None, occasion: Occasion
) -> Reward:
    """Scores of people from the feedback store, and the reward model where they give none in time."""
    from ppolm.feedback.store import FeedbackStore  # SQLAlchemy is imported only where it is used
    from ppolm.rewards.human_reward import HumanReward

    model = None
    if config.human_fallback == "model":
        model = build_reward("model", config, reward_model)
    return HumanReward(FeedbackStore(config.feedback_store), config.human_timeout, model, occasion)


class ModelReward:
    """The reward model or ensemble as a reward; it ignores data columns."""

    shares_passes = True

    def __init__(self, model: RewardModel | RewardEnsemble) -> None:
        self.model = model

    def __call__(self, prompts: Sequence[Any], responses: Sequence[str], **columns: Sequence[Any]) -> Sequence[Score]:  # noqa: ARG002
        """A score per response."""
        return self.model(prompts, responses)


def weighted_sum(scores: Sequence[Score], weights: Sequence[float]) -> Score:
    """Σ w · score of one response. If any reward is per token, the others are added at the last token."""
    sizes = {len(score) for score in scores if not isinstance(score, (int, float))}
    if len(sizes) > 1:
        raise RewardError(f"Rewards per token of one response differ in length: {sorted(sizes)}.")
    length = max(sizes, default=0)
    summed = [0.0] * max(length, 1)
    for weight, score in zip(weights, scores, strict=True):
        tokens = [*[0.0] * (len(summed) - 1), score] if isinstance(score, (int, float)) else score
        summed = [left + weight * right for left, right in zip(summed, tokens, strict=True)]
    return summed if length else summed[0]
