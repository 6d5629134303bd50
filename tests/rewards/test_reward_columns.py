"""A reward that requires a data column gets it, or reports the missing column before the first step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from ppolm.config import PPOConfig
from ppolm.errors import RewardError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rewards.function_reward import FunctionReward
from tests.conftest import spread

MakeConfig = Callable[..., PPOConfig]


def with_title(prompts: list[str], responses: list[str], title: list[str | None]) -> list[float]:
    return [float(name is not None) for name in title]


ROWS = [{"prompt": f"Prompt {number}", "topic": "rain"} for number in range(6)]
LACKS = (
    "Reward with_title asks for the column 'title', which the data does not have. Its columns beside the prompt: topic."
    " Add the column, or let the function do without: title=None."
)


def test_a_column_that_is_not_there_is_named_before_the_first_step(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PPOTrainer, "ppo_step", None)
    config = make_config(eval_every=0, on_reward_error="default")
    with pytest.raises(RewardError) as told:
        PPOTrainer(config, reward=with_title).train(ROWS)
    assert str(told.value) == LACKS
    assert not Path(config.output_dir).exists()
    judged = make_config(eval_every=1, judge=f"{__name__}:with_title")
    with pytest.raises(RewardError, match="asks for the column 'title'"):
        PPOTrainer(judged, reward=spread).train(ROWS[:1], eval_prompts=ROWS[1:])


def test_a_single_step_names_the_column_too(make_config: MakeConfig) -> None:
    with pytest.raises(RewardError) as told:
        PPOTrainer(make_config(), reward=with_title).ppo_step(ROWS[:2])
    assert str(told.value).startswith(LACKS)


def test_a_column_that_some_rows_have_is_none_in_a_batch_without_it(make_config: MakeConfig) -> None:
    """Which rows share a batch is random, and must not decide whether a run fails."""
    rows = [*ROWS, {"prompt": "One with it", "title": "Rain"}]
    results = PPOTrainer(make_config(eval_every=0, batch_size=1, minibatch_size=1), reward=with_title).train(rows)
    assert sorted(row["avg_reward"] for row in results.metrics) == [0.0] * 6 + [1.0]


def without_title(prompts: list[str], responses: list[str], title: list[str] | None = None) -> list[float]:
    return [0.0] * len(responses)


@pytest.mark.parametrize("function", [without_title, functools.partial(with_title, title=[None, None])])
def test_a_column_that_the_function_can_do_without_need_not_be_there(function: Callable[..., list[float]]) -> None:
    reward = FunctionReward(function, "reward", 5.0)
    reward.expect_columns(["topic"])
    assert reward(["a", "b"], ["c", "d"]) == [0.0, 0.0]
