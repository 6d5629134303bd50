"""Scaling a batch of numbers to unit deviation."""

import torch
from torch import Tensor

EPSILON = 1e-8
"""Added to the variance, so that equal numbers are not divided by 0."""


def mean_and_variance(values: Tensor) -> tuple[Tensor, Tensor]:
    """μ and the biased variance σ² of a batch, in float64."""
    return values.double().mean(), values.double().var(correction=0)


def whiten(values: Tensor, keep_mean: bool) -> Tensor:
    """(x − μ) / √(σ² + 1e-8), plus μ again if ``keep_mean``; σ² is the biased variance over all real tokens.

    The tables hold no padding, so every number counts. A single number has no deviation and only loses its mean.
    """
    mean, variance = mean_and_variance(values)
    white = (values.double() - mean) * torch.rsqrt(variance + EPSILON)
    return (white + mean if keep_mean else white).float()
