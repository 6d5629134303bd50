"""The PPO-clip loss (Schulman et al. 2017, arXiv 1707.06347), with asymmetric and dual clip."""

import torch
from torch import Tensor


def ppo_clip_loss(
    ratio: Tensor, advantage: Tensor, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Tensor:
    """−min(r A, clip(r, 1 − ε_low, 1 + ε_high) A) per token [n].

    With ``dual_clip`` c > 1 (Ye et al. 2020, arXiv 1912.09729) the loss of a bad action is bounded by −c A: where A < 0
    the objective is max(min(...), c A), so that an exploding ratio cannot dominate the batch.
    """
    objective = torch.minimum(ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
    if dual_clip is not None:
        objective = torch.where(advantage < 0, torch.maximum(objective, dual_clip * advantage), objective)
    return -objective
