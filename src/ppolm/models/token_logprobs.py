"""Log-probabilities of chosen tokens, without ever holding a [batch, time, vocabulary] tensor."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LOGIT_CHUNK = 2**24
"""Logits held at once (64 MiB in float32), whatever the batch, the prompt lengths and the vocabulary."""


def token_logprobs(
    hidden: Tensor,
    actions: Tensor,
    project: Callable[[Tensor], Tensor],
    temperature: float,
    vocab_size: int,
    entropy: Literal["skip", "measure", "train"] = "skip",
) -> tuple[Tensor, Tensor]:
    """log π(a|s) = z_a − log Σ_v exp(z_v) and entropy H = log Σ exp(z) − Σ π z, with z = logits / temperature.

    ``hidden`` [n, d] are the states, ``actions`` [n] the tokens; both answers are [n] in float32. The entropy is zeros
    unless it is asked for, and has gradients only if it is to be trained. Logits are made in chunks; when gradients
    are needed and there are several chunks, each is computed again in the backward pass instead of being kept.
    """

    def chunk(states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        logits = project(states).float() / temperature
        log_sum = torch.logsumexp(logits, dim=-1)
        logprob = logits.gather(-1, tokens[:, None]).squeeze(-1) - log_sum
        if entropy == "skip":
            return logprob, torch.zeros_like(logprob)
        with torch.set_grad_enabled(torch.is_grad_enabled() and entropy == "train"):
            return logprob, log_sum - ((logits - log_sum[:, None]).exp() * logits).sum(-1)

    size = max(16, LOGIT_CHUNK // vocab_size)
    if len(hidden) <= size:
        return chunk(hidden, actions)
    parts = []
    for states, tokens in zip(hidden.split(size), actions.split(size), strict=True):
        if torch.is_grad_enabled():
            parts.append(checkpoint(chunk, states, tokens, use_reentrant=False))
        else:
            parts.append(chunk(states, tokens))
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
