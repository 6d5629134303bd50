"""Weights that correct for a sampler that is not quite the policy that is trained: another program, or an older one."""

from __future__ import annotations

import torch
from torch import Tensor


def importance_weights(logprob_policy: Tensor, logprob_sampler: Tensor, cap: float) -> Tensor:
    """w_t = min(π(a_t|s_t) / μ(a_t|s_t), cap) with μ the sampler; all [N].

    Truncated importance sampling (Espeholt et al. 2018, arXiv 1802.01561): unbiased where nothing is cut, and a token
    that the sampler gave far less probability than the policy cannot dominate the loss.
    """
    return (logprob_policy - logprob_sampler).exp().clamp(max=cap)


def within_sequence_cap(logprob_policy: Tensor, logprob_sampler: Tensor, offsets: Tensor, cap: float) -> Tensor:
    """1 for the tokens of a sequence with Π_t π/μ between 1/cap and cap, else 0; [N]. ``offsets`` is [S + 1]."""
    lengths = offsets.diff()
    owner = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    log_ratio = (logprob_policy - logprob_sampler).double()
    totals = torch.zeros(len(lengths), dtype=torch.float64).index_add_(0, owner, log_ratio)
    kept = totals.abs() <= torch.tensor(cap, dtype=torch.float64).log()
    return kept[owner].to(logprob_policy.dtype)


def effective_share(weights: Tensor) -> float:
    """(Σ w)² / (N Σ w²): the share of the tokens that counts; 1 if all weigh the same, 0 if none weighs anything."""
    squares = weights.double().square().sum()
    return float(weights.double().sum().square() / (len(weights) * squares)) if squares else 0.0
