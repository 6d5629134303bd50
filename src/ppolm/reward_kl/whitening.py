"""Scaling a batch of numbers to unit deviation."""

import torch
from torch import Tensor


def whiten(values: Tensor, keep_mean: bool) -> Tensor:
    """(x − μ) / √(σ² + 1e-8), plus μ again if ``keep_mean``; σ² is the biased variance over all real tokens.

    The tables hold no padding, so every number counts. A single number has no deviation and only loses its mean.
    """
    mean = values.double().mean()
    variance = values.double().var(correction=0)
    white = (values.double() - mean) * torch.rsqrt(variance + 1e-8)
    return (white + mean if keep_mean else white).float()
