"""Equality up to rounding, whatever the CPU, its instructions and the number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

ROUNDINGS = 1000
"""Rounding errors (last bits) that long sums in another order may add up to. A wrong formula is off by far more."""


def assert_rounding(ours: Tensor, expected: Tensor, roundings: int = ROUNDINGS, what: str = "") -> None:
    """Assert equality up to ``roundings`` last bits of the largest number in ``expected``.

    Relative to the largest number, not to each: a sum that nearly cancels has the error of its terms.
    """
    ours, expected = ours.detach(), expected.detach()
    assert ours.shape == expected.shape, f"{what} shapes {tuple(ours.shape)} and {tuple(expected.shape)}"
    size = float(expected.abs().max()) if expected.numel() else 0.0
    off = float((ours.double() - expected.double()).abs().max()) if expected.numel() else 0.0
    limit = roundings * torch.finfo(torch.float32).eps * size
    assert off <= limit, f"{what} off by {off:.3g}, {limit:.3g} is rounding of numbers up to {size:.3g}"


def assert_all_rounding(ours: Mapping[str, Tensor], expected: Mapping[str, Tensor], roundings: int = ROUNDINGS) -> None:
    """The same for named tensors, relative to the largest number in all of them, as for the gradients of one loss."""
    assert ours.keys() == expected.keys()
    size = max((float(value.abs().max()) for value in expected.values()), default=0.0)
    limit = roundings * torch.finfo(torch.float32).eps * size
    off = {name: float((ours[name].double() - value.double()).abs().max()) for name, value in expected.items()}
    worst = max(off, key=lambda name: off[name], default="")
    assert not off or off[worst] <= limit, f"{worst} off by {off[worst]:.3g}, {limit:.3g} is rounding"


def near(value: Any, size: float = 1.0) -> Any:
    """For ``==``: a number, or numbers, of about this size, up to rounding."""
    relative = ROUNDINGS * torch.finfo(torch.float32).eps
    return pytest.approx(value, rel=relative, abs=relative * size)
