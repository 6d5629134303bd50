"""What the tests of the MLX engine share: the embedded model with a policy that has learned something."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.embedded import DEMO
from ppolm.models import PolicyModel

needs_mlx = pytest.mark.skipif(
    importlib.util.find_spec("mlx_lm") is None, reason="mlx-lm is not installed: Python 3.11 and the extra mlx"
)


def embedded_models(**changes: Any) -> Models:
    """The roles of the demo."""
    return setup_models(PPOConfig.from_yaml(DEMO).changed(dtype="float32", device="cpu", **changes))


@torch.no_grad()
def learn(policy: PolicyModel, seed: int, size: float = 0.1) -> None:
    """Change every weight of the policy's adapter, as an update would."""
    random = torch.Generator().manual_seed(seed)
    for parameter in policy.parameters().values():
        parameter.add_(torch.randn(parameter.shape, generator=random) * size)
