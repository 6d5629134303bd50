"""Which prompts come in which step depends only on seed and step, at a cost that does not grow with the data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ppolm.data.prompts import as_prompts
from ppolm.runs.prompt_schedule import PromptSchedule, seeded


def schedule(count: int, per_step: int, epochs: int = 3) -> PromptSchedule:
    prompts = as_prompts([f"prompt {i}" for i in range(count)])
    return PromptSchedule(prompts, [], per_step, epochs, None, seed=7)


@pytest.mark.parametrize(("count", "per_step"), [(10, 3), (10, 10), (3, 8), (7, 1)])
def test_batches_follow_the_permutation_of_each_epoch_in_whatever_order_they_are_asked_for(
    count: int, per_step: int
) -> None:
    orders = [torch.randperm(count, generator=seeded(7, epoch)).tolist() for epoch in range(3)]
    expected = [f"prompt {i}" for order in orders for i in order]
    plan = schedule(count, per_step)
    steps = list(range(plan.total_steps))
    for step in (*steps, *reversed(steps)):
        contents = [prompt.content for prompt in plan.batch(step)]
        assert contents == expected[step * per_step : (step + 1) * per_step]


def test_an_epoch_is_permuted_once_and_no_more_than_a_batch_needs_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    randperm = torch.randperm

    def count(size: int, **options: Any) -> torch.Tensor:
        made.append(size)
        return randperm(size, **options)

    monkeypatch.setattr(torch, "randperm", count)
    plan = schedule(10, 3)
    for step in range(plan.total_steps):
        plan.batch(step)
        assert len(plan._orders) <= 2
    assert made == [10, 10, 10]
