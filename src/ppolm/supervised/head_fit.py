"""Fitting a scalar head to fixed hidden states: a convex problem, solved before the adapter trains.

If the head already agrees with people, the adapter improves the features instead of first undoing the effect of a
random head (linear probing, then fine-tuning: Kumar et al. 2022, arXiv 2202.10054).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ppolm.models.scalar_head import ScalarHead

PENALTIES = tuple(10 ** (half / 2) for half in range(2, -9, -1))
"""Weights of |v|² to try, from 10 down to 1e-4; each fit starts from the previous solution."""

Loss = Callable[[Tensor], Tensor]
"""Mean loss over rows, given the scores of their answers."""


def fit_head(
    head: ScalarHead, states: Tensor, loss: Loss, held_out_states: Tensor, held_out_loss: Loss
) -> tuple[float, float]:
    """Set the head to the weights with the lowest held-out loss; returns that loss and its penalty.

    Minimises loss(z v + b) + penalty · |v|² over v and b, where z are the states [n, d] at mean 0 and deviation 1.
    """
    # On the CPU: Apple's devices have no float64, and the fit should not depend on the device.
    states, held_out_states = states.cpu().double(), held_out_states.cpu().double()
    mean, std = states.mean(0), states.std(0).clamp(min=1e-6)
    z, z_held_out = (states - mean) / std, (held_out_states - mean) / std
    solution = torch.zeros(states.shape[1] + 1, dtype=torch.float64)
    best: tuple[float, float, Tensor] | None = None
    for penalty in PENALTIES:
        solution = _minimise(lambda s: loss(z @ s[:-1] + s[-1]) + penalty * s[:-1].square().sum(), solution)  # noqa: B023
        with torch.no_grad():
            measured = float(held_out_loss(z_held_out @ solution[:-1] + solution[-1]))
        if best is None or measured < best[0]:
            best = (measured, penalty, solution)
    assert best is not None
    weight = best[2][:-1] / std
    with torch.no_grad():
        head.linear.weight.copy_(weight[None].float())
        head.linear.bias.copy_((best[2][-1:] - weight @ mean).float())
    return best[0], best[1]


def _minimise(objective: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    solution = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([solution], max_iter=200, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = objective(solution)
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(closure)
    return solution.detach()
