"""Bradley-Terry: how likely the better of two answers is to win, by their scores."""

import torch
from torch import Tensor


def preference_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """−log σ(s_chosen − s_rejected) of each pair [P] (Bradley and Terry 1952)."""
    return -torch.nn.functional.logsigmoid(chosen - rejected)


def preference_accuracy(chosen: Tensor, rejected: Tensor) -> float:
    """Share of the pairs in which the chosen answer scores higher; a tie counts half."""
    return float(((chosen > rejected).double() + 0.5 * (chosen == rejected).double()).mean())
