"""A token that is chosen from MLX's logits is the one that the same numbers choose in torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ppolm.errors import TrainingDivergedError
from ppolm.rollout.sampling import Sampling, choose_tokens
from tests.closeness import assert_rounding
from tests.engines.mlx_models import needs_mlx

pytestmark = needs_mlx

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.3},
    {"top_k": 1},
    {"top_k": 7, "temperature": 2.0},
    {"top_k": 50, "top_p": 0.6},
    {"top_k": 5000},
    {"top_p": 0.8},
    {"greedy": True, "temperature": 0.5},
    {"greedy": True, "top_k": 7, "top_p": 0.2},
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_choice_is_that_of_torch(settings: dict[str, Any]) -> None:
    import mlx.core as mx

    from ppolm.engines.mlx_choice import choose_from

    random, sampling = torch.Generator().manual_seed(4), Sampling(1, **settings)
    logits = torch.randn(400, 4000, generator=random) * 3
    uniforms = torch.rand(400, generator=random, dtype=torch.float64)
    uniforms[:2] = torch.tensor([0.0, math.nextafter(1.0, 0.0)])
    tokens, logprobs = choose_from(mx.array(logits.numpy()), uniforms, sampling)
    expected, values = choose_tokens(logits, uniforms, sampling)
    assert tokens == expected.tolist()
    assert_rounding(torch.tensor(logprobs), values)


@pytest.mark.parametrize("settings", [{}, {"top_k": 3}, {"greedy": True}], ids=str)
def test_logits_that_are_not_finite_stop_the_run(settings: dict[str, Any]) -> None:
    import mlx.core as mx

    from ppolm.engines.mlx_choice import choose_from

    logits = mx.array([[0.0, 1.0, 2.0, 3.0], [math.nan] * 4])
    with pytest.raises(TrainingDivergedError, match="not finite"):
        choose_from(logits, torch.tensor([0.5, 0.5], dtype=torch.float64), Sampling(1, **settings))
