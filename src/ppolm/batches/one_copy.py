"""Several index tensors to a device in one copy: each copy of its own would make the host wait once more."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def on_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Tensors of one dtype that are on the CPU, on a device; on the CPU they are returned as they are."""
    if device.type == "cpu":
        return list(tensors)
    flat = torch.cat([one.reshape(-1) for one in tensors]).to(device)
    parts = flat.split([one.numel() for one in tensors])
    return [part.view(one.shape) for part, one in zip(parts, tensors, strict=True)]
