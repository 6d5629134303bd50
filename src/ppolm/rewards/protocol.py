"""The interface of rewards, and the checks applied to all of them."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ppolm.data.prompts import preview
from ppolm.errors import RewardError
from ppolm.messages import brief, reason
from ppolm.reward_kl.reward_adjuster import Score

LARGEST = 1e15
"""The largest score: its square, and sums over a batch, are still finite."""
WITHIN = f"a number within ±{LARGEST:g}"


class Reward(Protocol):
    """Scores responses: one number per response, or one per token of each response."""

    def __call__(
        self, prompts: Sequence[Any], responses: Sequence[str], **columns: Sequence[Any]
    ) -> Sequence[Score | RewardError]:
        """``columns`` are the extra columns of the data rows, one value per response."""


class Rewards(list[Score]):
    """The rewards of some responses, with the parts they were computed from."""

    def __init__(self, scores: Iterable[Score], components: Mapping[str, float] | None = None, failed: int = 0) -> None:
        super().__init__(scores)
        self.components = dict(components or {})
        """Mean of each reward before weighting, by name."""
        self.failed = failed
        """How many of the scores are ``default_reward`` because the reward failed."""


def failed_scores(rewards: Sequence[Score]) -> int:
    """How many rewards are ``default_reward``; a plain list of scores has none."""
    return rewards.failed if isinstance(rewards, Rewards) else 0


def reward_components(rewards: Sequence[Score]) -> dict[str, float]:
    """The mean of each reward, by name; empty if there is only one."""
    found = rewards.components if isinstance(rewards, Rewards) else {}
    return {f"reward/{name}": mean for name, mean in found.items()} if len(found) > 1 else {}


class RewardCallError(RewardError):
    """The whole call failed (time-out, no connection), so calling again for single responses would not help."""


def scores_or_errors(
    reward: Reward,
    name: str,
    prompts: Sequence[Any],
    responses: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
    caught: type[Exception] = Exception,
) -> list[Score | RewardError]:
    """A checked score for each response, or the error that explains why there is none. Never raises RewardError.

    Errors that are not ``caught`` go through: of a reward that all processes of a job compute together, only its own
    errors are seen by all of them, and one that tried again alone would be in an exchange that the others are not in.
    """
    try:
        return _checked(reward(prompts, responses, **columns), name, prompts, responses)
    except RewardCallError as error:
        return [RewardError(f"{error} First prompt of the call: {preview(prompts[0])}")] * len(prompts)
    except caught as error:  # a user's function may raise anything
        if len(prompts) == 1:
            said = f"{type(error).__name__}: {reason(error)}{_where(error)}"
            failed = RewardError(f"Reward {name} raised {said} for prompt {preview(prompts[0])}")
            failed.__cause__ = error
            return [failed]
        # Retry one by one: the error can then name the prompt, and the other responses keep their scores.
        singles = ({key: values[i : i + 1] for key, values in columns.items()} for i in range(len(prompts)))
        return [
            scores_or_errors(reward, name, prompts[i : i + 1], responses[i : i + 1], single, caught)[0]
            for i, single in enumerate(singles)
        ]


def _where(error: BaseException) -> str:
    """The line of the reward that raised, if there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _checked(raw: Any, name: str, prompts: Sequence[Any], responses: Sequence[str]) -> list[Score | RewardError]:
    items = _plain(raw)
    if not isinstance(items, (list, tuple)):
        found = f"Reward {name} returned {type(items).__name__}, expected a list with one score per response."
        return [RewardError(f"{found} First prompt: {preview(prompts[0])}")] * len(prompts)
    if len(items) != len(prompts):
        missing = prompts[min(len(items), len(prompts) - 1)]
        found = f"Reward {name} returned {len(items)} scores for {len(prompts)} responses."
        return [RewardError(f"{found} First prompt affected: {preview(missing)}")] * len(prompts)
    return [_checked_score(*triple, name) for triple in zip(items, prompts, responses, strict=True)]


def _checked_score(raw: Any, prompt: Any, response: str, name: str) -> Score | RewardError:
    if isinstance(raw, RewardError):  # a reward of ours that has asked for this one, and must not ask again
        return raw
    raw = _plain(raw)
    values = [_plain(value) for value in raw] if isinstance(raw, (list, tuple)) else [raw]
    for value in values:
        if not isinstance(value, (int, float)):  # True and False are 1 and 0
            return RewardError(
                f"Reward {name} returned {brief(value)}, expected a number, for prompt {preview(prompt)}"
            )
        if not -LARGEST <= value <= LARGEST:  # true for NaN too
            expected = "a finite number" if isinstance(value, float) and not math.isfinite(value) else WITHIN
            return RewardError(
                f"Reward {name} returned {brief(value)}, expected {expected}, for prompt {preview(prompt)}"
            )
    if not isinstance(raw, (list, tuple)):
        return float(raw)
    if not values:
        return RewardError(f"Reward {name} returned an empty list for a response, for prompt {preview(prompt)}")
    tokens = getattr(response, "token_ids", None)
    if tokens is not None and len(tokens) != len(values):
        found = f"Reward {name} returned {len(values)} token scores for a response of {len(tokens)} tokens"
        return RewardError(f"{found} (response.tokens lists them, EOS included), for prompt {preview(prompt)}")
    return [float(value) for value in values]


def _plain(value: Any) -> Any:
    """Tensors and arrays as plain numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else value
