"""How many weights the blocks of a model have, and how many of them a token uses: a block may hold many experts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ppolm.batches.packing_cost import size_in

CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts", "num_selected_experts")
"""What configurations call the number of experts that each token is sent to."""
ONE_OF_SEVERAL = re.compile(r"(^|\.)experts\.\d+\.")
"""The path of an expert that is a module of its own, as in older models."""


@dataclass(frozen=True)
class BlockWeights:
    """Numbers of weights in matrices."""

    dense: float
    """Used by every token: attention, the router, and layers without experts."""
    experts: float = 0.0
    """Of all experts together."""
    count: int = 1
    """Experts of a block."""
    chosen: int = 1
    """Experts that each token is sent to."""

    @property
    def stored(self) -> float:
        """All of them."""
        return self.dense + self.experts

    @property
    def active(self) -> float:
        """Those that one token uses."""
        return self.dense + self.experts * self.chosen / self.count

    def read(self, rows: float) -> float:
        """Those that ``rows`` tokens use together, if each is sent to any experts: a share of 1 − (1 − k / E)^rows."""
        return self.dense + self.experts * (1 - (1 - self.chosen / self.count) ** max(rows, 1.0))

    @classmethod
    def of(cls, config: Any, blocks: Iterable[nn.Module]) -> BlockWeights:
        """The mean of some blocks of a model: the first ones may have no experts."""
        found = [_of_block(block) for block in blocks]
        count = max(number for _, _, number in found)
        chosen = next((size for name in CHOSEN if (size := size_in(config, name))), count)
        dense, experts = (sum(sizes) / len(found) for sizes in list(zip(*found, strict=True))[:2])
        return cls(dense, experts, count, min(chosen, count))


def _of_block(block: nn.Module) -> tuple[int, int, int]:
    """Weights outside and inside of experts, and the number of experts."""
    dense, experts, count = 0, 0, 1
    for path, module in block.named_modules():
        if ".lora_" in path:  # an adapter's own
            continue
        own = [one for one in module.parameters(recurse=False) if one.dim() > 1]
        if isinstance(module, nn.ModuleList) and path.endswith("experts"):
            count = max(count, len(module))
        for weight in own:
            several = experts_in(module, weight)
            count = max(count, several)
            if several > 1 or ONE_OF_SEVERAL.search(f"{path}."):
                experts += weight.numel()
            else:
                dense += weight.numel()
    return dense, experts, count


def experts_in(module: nn.Module, weight: Tensor) -> int:
    """How many experts' matrices [E, ., .] a weight holds; a convolution's [d, 1, w] are none."""
    counts = {getattr(module, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts")}
    return len(weight) if weight.dim() == 3 and len(weight) in counts else 1
