"""Log-probabilities of chosen tokens, without ever holding a [batch, time, vocabulary] tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ppolm.base_setup.fused_ops import log_sum_exp
from ppolm.base_setup.products import logits as product_logits
from ppolm.base_setup.products import logits_backward

LOGIT_CHUNK = 2**24
"""Logits held at once (64 MiB in float32), whatever the batch, the prompt lengths and the vocabulary."""


def token_logprobs(
    hidden: Tensor,
    actions: Tensor,
    project: Callable[[Tensor], Tensor],
    temperature: float,
    vocab_size: int,
    entropy: Literal["skip", "measure", "train"] = "skip",
    matrix: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """log π(a|s) = z_a − log Σ_v exp(z_v) and entropy H = log Σ exp(z) − Σ π z, with z = logits / temperature.

    ``hidden`` [n, d] are the states, ``actions`` [n] the tokens; both answers are [n] in float32. The entropy is zeros
    unless it is asked for, and has gradients only if it is to be trained. Logits are made in chunks; when gradients
    are needed and there are several chunks, each is computed again in the backward pass instead of being kept. That is
    not needed where ``project`` is known to be nothing but a product with a frozen ``matrix`` [V, d].
    """
    size = max(16, LOGIT_CHUNK // vocab_size)
    if matrix is not None and entropy != "train" and torch.is_grad_enabled() and hidden.requires_grad:
        logprob, measured = _LogProbs.apply(hidden, matrix, actions, temperature, size, entropy == "measure")
        return logprob, measured

    def chunk(states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        logits = project(states).float() / temperature
        # Without gradients in fewer passes; autograd needs torch's own.
        log_sum = torch.logsumexp(logits, dim=-1) if logits.requires_grad else log_sum_exp(logits)
        logprob = logits.gather(-1, tokens[:, None]).squeeze(-1) - log_sum
        if entropy == "skip":
            return logprob, torch.zeros_like(logprob)
        with torch.set_grad_enabled(torch.is_grad_enabled() and entropy == "train"):
            return logprob, log_sum - ((logits - log_sum[:, None]).exp() * logits).sum(-1)

    if len(hidden) <= size:
        return chunk(hidden, actions)
    parts = []
    for states, tokens in zip(hidden.split(size), actions.split(size), strict=True):
        if torch.is_grad_enabled():
            parts.append(checkpoint(chunk, states, tokens, use_reentrant=False))
        else:
            parts.append(chunk(states, tokens))
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


class _LogProbs(torch.autograd.Function):
    """log π(a|s) whose gradient is made beside it, while the logits are there: dh = dy · (1_a − π) W / temperature."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, matrix: Tensor, actions: Tensor, temperature: float, size: int, measure: bool
    ) -> tuple[Tensor, Tensor]:
        logprobs, entropies = (torch.zeros(len(hidden), device=hidden.device) for _ in range(2))
        direction = torch.empty_like(hidden)
        for start in range(0, len(hidden), size):
            part = slice(start, start + size)
            tokens = actions[part, None]
            logits = product_logits(hidden[part], matrix).float().div_(temperature)
            top = logits.amax(-1, keepdim=True)
            likely = torch.sub(logits, top).exp_()
            total = likely.sum(-1, keepdim=True)
            likely.div_(total)
            log_sum = total.log_().add_(top).squeeze(-1)
            logprobs[part] = logits.gather(-1, tokens).squeeze(-1) - log_sum
            if measure:
                entropies[part] = log_sum - torch.linalg.vecdot(likely, logits)
            # The difference is taken in float32: a likely token's 1 − π would be lost in bfloat16.
            away = likely.neg_().scatter_add_(-1, tokens, torch.ones_like(log_sum)[:, None])
            direction[part] = logits_backward(away, matrix, hidden[part]).div_(temperature)
        ctx.save_for_backward(direction)
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (direction,) = ctx.saved_tensors
        return (direction * grads[0][:, None]).to(direction.dtype), None, None, None, None, None
