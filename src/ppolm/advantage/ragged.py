"""Sums over the rest of each sequence, for flat columns without padding."""

import torch
from torch import Tensor


def steps_left(offsets: Tensor) -> Tensor:
    """[N]: how many rows of the same sequence follow each row."""
    lengths = offsets.diff()
    return torch.repeat_interleave(offsets[1:], lengths) - torch.arange(int(offsets[-1])) - 1


def discounted_suffix_sums(values: Tensor, offsets: Tensor, discount: float) -> Tensor:
    """y_t = Σ_{i≥0} discountⁱ · x_{t+i} within each sequence; [N] -> [N] in float64.

    By doubling: if y holds sums of 2ʲ terms, y_t + discount^(2ʲ) · y_{t+2ʲ} holds sums of twice as many. A pass is one
    vector operation, so the cost is N · log₂(longest sequence), with no loop over tokens or sequences.
    """
    sums, left = values.to(torch.float64, copy=True), steps_left(offsets)
    span, longest = 1, int(offsets.diff().max())
    while span < longest:
        ahead = sums[span:] * (left[:-span] >= span)
        sums[:-span].add_(ahead, alpha=discount**span)
        span *= 2
    return sums
