"""Bradley-Terry: how likely the better of two answers is to win, given their scores."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def preference_loss(
    chosen: Tensor, rejected: Tensor, margin: Tensor | float = 0.0, tie: Tensor | None = None
) -> Tensor:
    """−log σ(s_chosen − s_rejected − margin) of each pair [P] (Bradley and Terry 1952).

    A tie says that each of the two wins half of the time: −½ log σ(d) − ½ log σ(−d) with d = s_chosen − s_rejected,
    lowest when both score the same.
    """
    difference = chosen - rejected
    loss = -logsigmoid(difference - margin)
    if tie is None:
        return loss
    return torch.where(tie, -(logsigmoid(difference) + logsigmoid(-difference)) / 2, loss)


def centring_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """(s_chosen + s_rejected)² of each pair [P]: fixes the level, which pairs leave open (Eisenstein et al. 2023)."""
    return (chosen + rejected) ** 2


def preference_accuracy(chosen: Tensor, rejected: Tensor) -> float:
    """Share of the pairs in which the chosen answer scores higher; a tie counts half."""
    chosen, rejected = chosen.cpu(), rejected.cpu()  # Apple's devices have no float64
    return float(((chosen > rejected).double() + 0.5 * (chosen == rejected).double()).mean())
