"""Numbers that differ as soon as a bit of some tensors or facts does, all but certainly, and cost little."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Name = TypeVar("Name")
AT_ONCE = 2**22
"""Numbers that are added up in one go: what that takes for a moment is small beside a model."""


def checksums(tensors: Mapping[Name, Tensor]) -> dict[Name, str]:
    """A checksum of each tensor, computed where the tensor is. Each device is read once, not once for every tensor."""
    import torch

    found: dict[torch.device, dict[Name, Tensor]] = {}
    with torch.no_grad():
        for name, value in tensors.items():
            found.setdefault(value.device, {})[name] = _sums(value)
        read = {name: pair for one in found.values() for name, pair in zip(one, _read(one), strict=True)}
    return {name: f"{read[name][0] % 2**64:016x}{read[name][1] % 2**64:016x}" for name in tensors}


def _sums(value: Tensor) -> Tensor:
    """[2]: the sum of all numbers, as the whole numbers with the same bits, and of their squares."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = value.detach().reshape(-1)
    bits = flat if flat.dtype == torch.bool else flat.view(kinds[flat.element_size()])
    total = torch.full((2,), bits.numel(), dtype=torch.int64, device=value.device)
    for part in bits.split(AT_ONCE):
        whole = part.to(torch.int64)
        total += torch.stack([whole.sum(), (whole * whole).sum()])
    return total


def _read(sums: Mapping[Name, Tensor]) -> list[list[int]]:
    import torch

    found: list[list[int]] = torch.stack(list(sums.values())).tolist()
    return found


def digest(value: object) -> str:
    """A hash of a value by how it is written."""
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
