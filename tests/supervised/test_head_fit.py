"""A head fitted before the adapter trains: the best for the untrained states, chosen on held-out rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import softplus

from ppolm.config import RewardConfig
from ppolm.models.scalar_head import ScalarHead
from ppolm.supervised import RewardTrainer
from ppolm.supervised.head_fit import PENALTIES, fit_head
from tests.closeness import near
from tests.supervised.small_trainings import PREFERENCES, QUICK, RATINGS, THUMBS


def pairs(rows: int, noise: float, seed: int) -> tuple[torch.Tensor, Any]:
    """States of chosen, then of rejected answers, which differ along the first axis, and the mean loss."""
    random = torch.Generator().manual_seed(seed)
    states = torch.randn(2 * rows, 20, generator=random) * torch.logspace(-2, 2, 20) + 5
    states[:rows, 0] += 0.02 * (1 - noise)
    return states, lambda scores: softplus(scores[rows:] - scores[:rows]).mean()


def test_the_direction_that_tells_answers_apart_is_found_whatever_the_scales() -> None:
    head = ScalarHead(20, torch.device("cpu"))
    held_out, held_out_loss = pairs(400, 0.0, seed=1)
    loss, penalty = fit_head(head, *pairs(400, 0.0, seed=0), held_out, held_out_loss)
    assert penalty in PENALTIES
    assert loss == near(float(held_out_loss(head(held_out))))
    weight = head.linear.weight[0] * torch.logspace(-2, 2, 20)
    assert int(weight.abs().argmax()) == 0
    assert loss < 0.5


def test_where_there_is_nothing_to_learn_the_held_out_rows_choose_a_strong_penalty() -> None:
    head = ScalarHead(20, torch.device("cpu"))
    loss, penalty = fit_head(head, *pairs(60, 1.0, seed=0), *pairs(400, 1.0, seed=1))
    assert penalty >= 1
    assert loss == pytest.approx(0.693, abs=0.02)


def trainer(model: Path, rows: list[Any], **changes: Any) -> RewardTrainer:
    return RewardTrainer(RewardConfig(model_name=str(model), **QUICK | {"num_epochs": 1} | changes), rows)


@pytest.mark.parametrize("rows", [PREFERENCES, RATINGS, THUMBS, [*PREFERENCES[:20], *RATINGS[:20], *THUMBS[:20]]])
def test_training_starts_better_with_a_fitted_head_on_every_kind_of_judgement(
    model_folder: Path, rows: list[Any]
) -> None:
    first = {kind: trainer(model_folder, rows, head_init=kind).train()[0]["loss"] for kind in ("random", "fit")}
    assert first["fit"] < 0.8 * first["random"]


def test_packing_does_not_change_the_fit(model_folder: Path) -> None:
    heads = []
    for packing in (True, False):
        one = trainer(model_folder, PREFERENCES, head_init="fit", packing=packing)
        one.begin()
        heads.append(one.model.head.linear.weight.clone())
    torch.testing.assert_close(*heads, rtol=1e-3, atol=1e-4)
