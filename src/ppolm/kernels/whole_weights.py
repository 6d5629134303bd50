"""Weights of which this process may hold only a shard: its own part, and copies with all of it."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def shard_of(weight: Tensor) -> Tensor:
    """What this process holds of a weight: all of it unless it is sharded."""
    local: Any = getattr(weight, "to_local", None)
    return weight if local is None else local()


def whole_copy(module: Module) -> Module:
    """A deep copy of a module with plain, whole weights. All processes must ask for it, if it is sharded."""
    sharded: list[Any] = [weight for weight in module.parameters() if shard_of(weight) is not weight]
    whole = {id(weight): nn.Parameter(weight.full_tensor(), weight.requires_grad) for weight in sharded}
    return copy.deepcopy(module, whole)
