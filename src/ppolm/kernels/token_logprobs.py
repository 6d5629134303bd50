"""Log-probabilities of chosen tokens, without ever holding a [batch, time, vocabulary] tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ppolm.kernels.fused_ops import log_sum_exp
from ppolm.kernels.products import TILE, converted, product_dtype

Entropy = Literal["skip", "measure", "train"]
"""Whether the entropy is skipped, computed without gradients, or computed with them."""
LOGIT_CHUNK = 2**24
"""Logits held at once (64 MiB in float32), whatever the batch, the prompt lengths and the vocabulary."""
DEVICE_CHUNK = 2**26
"""The same on a device (256 MiB): every tile costs some thirty kernels, and there is no cache for it to stay in."""


def token_logprobs(
    hidden: Tensor,
    actions: Tensor,
    project: Callable[[Tensor], Tensor],
    temperature: float,
    vocab_size: int,
    entropy: Entropy = "skip",
    matrix: Tensor | None = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """log π(a|s) = z_a − log Σ_v exp(z_v) and entropy H = log Σ exp(z) − Σ π z, with z = logits / temperature.

    ``hidden`` [n, d] are the states, ``actions`` [n] the tokens; both results are [n] in float32. The entropy is zero
    unless requested, and has gradients only if it is to be trained. Logits are computed in chunks; when gradients are
    needed and there are several chunks, each is recomputed in the backward pass instead of being kept. That is not
    necessary where ``project`` is known to be just ``scale`` times the product with a frozen ``matrix`` [V, d].
    """
    if matrix is not None and entropy != "train":
        given = (hidden, matrix, actions, temperature / scale, entropy == "measure")
        if torch.is_grad_enabled() and hidden.requires_grad:
            logprob, measured = _LogProbs.apply(*given)
            return logprob, measured
        return stream_logprobs(*given, gradients=False)[:2]

    def chunk(states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return _from_logits(project(states).float() / temperature, tokens, entropy)

    return _in_chunks(chunk, hidden, actions, max(16, LOGIT_CHUNK // vocab_size))


def _from_logits(logits: Tensor, tokens: Tensor, entropy: Entropy) -> tuple[Tensor, Tensor]:
    """log π(a|s) and H [n] from all logits z [n, V] at once."""
    # Fewer passes without gradients; autograd needs torch's own function.
    log_sum = torch.logsumexp(logits, dim=-1) if logits.requires_grad else log_sum_exp(logits)
    logprob = logits.gather(-1, tokens[:, None]).squeeze(-1) - log_sum
    if entropy == "skip":
        return logprob, torch.zeros_like(logprob)
    with torch.set_grad_enabled(torch.is_grad_enabled() and entropy == "train"):
        return logprob, log_sum - ((logits - log_sum[:, None]).exp() * logits).sum(-1)


def _in_chunks(
    chunk: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], hidden: Tensor, actions: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """``chunk`` of at most ``size`` states at a time; with gradients, each is recomputed in the backward pass."""
    if len(hidden) <= size:
        return chunk(hidden, actions)
    parts = []
    for states, tokens in zip(hidden.split(size), actions.split(size), strict=True):
        if torch.is_grad_enabled():
            parts.append(checkpoint(chunk, states, tokens, use_reentrant=False))
        else:
            parts.append(chunk(states, tokens))
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def stream_logprobs(
    hidden: Tensor, matrix: Tensor, actions: Tensor, temperature: float, measure: bool, gradients: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """log π(a|s), and if requested the entropy and d log π(a|s) / dh = (1_a − π) W / temperature [n, d].

    The vocabulary is processed a tile at a time, with a running maximum m and sums of exp(z − m), so that logits never
    leave the cache and a tile of W is read once for everything computed from it.
    """
    rows, tile = tile_shape(hidden, len(matrix))
    parts = [
        _stream(states, matrix, tokens, temperature, measure, gradients, tile)
        for states, tokens in zip(hidden.split(rows), actions.split(rows), strict=True)
    ]
    logprobs, entropies, directions = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies), torch.cat(directions) if gradients else None


def tile_shape(hidden: Tensor, vocabulary: int) -> tuple[int, int]:
    """How many states [n, d] and how many tokens of the vocabulary a tile of logits has, at most.

    On a CPU a tile stays in the cache. On a device it is the whole vocabulary if that fits.
    """
    if hidden.device.type == "cpu":
        return LOGIT_CHUNK // TILE, TILE
    rows = min(len(hidden), DEVICE_CHUNK // TILE)
    return rows, min(vocabulary, DEVICE_CHUNK // max(rows, 1))


def _stream(
    hidden: Tensor, matrix: Tensor, actions: Tensor, temperature: float, measure: bool, gradients: bool, size: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same for a part of the states, in tiles of ``size`` tokens of the vocabulary."""
    dtype = product_dtype(hidden, matrix)
    states = (hidden.float() / temperature).to(dtype)
    top = torch.full((len(hidden),), -torch.inf, device=hidden.device)
    total, weighted, chosen = (torch.zeros_like(top) for _ in range(3))
    others = torch.zeros(hidden.shape, device=hidden.device) if gradients else None
    for start in range(0, len(matrix), size):
        tile = converted(matrix[start : start + size], dtype)
        logits = (states @ tile.T).float()
        # Gather a column of every row, then keep it where it is the action: selecting those rows would make the host
        # wait for the device at every tile.
        inside = (actions >= start) & (actions < start + size)
        columns = (actions - start).clamp_(0, len(tile) - 1)[:, None]
        chosen = torch.where(inside, logits.gather(1, columns).squeeze(1), chosen)
        before, top = top, torch.maximum(top, logits.amax(-1))
        shrink = torch.exp(before - top)
        below = logits.sub_(top[:, None])
        terms = torch.exp(below)
        if measure:  # Σ exp(z − m) (z − m), which is small where the entropy is
            moved = total * (before - top).nan_to_num_(neginf=0.0)
            weighted = weighted.add_(moved).mul_(shrink).add_(torch.linalg.vecdot(terms, below))
        total = total.mul_(shrink).add_(terms.sum(-1))
        if others is not None:
            # Without the chosen token itself: if it is likely, 1 − π would be lost in a low-precision product.
            terms.scatter_(1, columns, terms.gather(1, columns).masked_fill_(inside[:, None], 0))
            others = _add_product(others.mul_(shrink[:, None]), terms.to(dtype), tile)
    log_sum = total.log().add_(top)
    logprob = chosen - log_sum
    entropy = total.log() - weighted / total if measure else weighted
    if others is None:
        return logprob, entropy, None
    away = matrix[actions].float().mul_(-torch.expm1(logprob)[:, None])
    return logprob, entropy, away.sub_(others.div_(total[:, None])).div_(temperature).to(hidden.dtype)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """total + left · right, added in float32."""
    return total.addmm_(left, right) if left.dtype == total.dtype else total.add_(left @ right)


class _LogProbs(torch.autograd.Function):
    """log π(a|s) whose gradient is computed in the forward pass, while the logits are at hand."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, matrix: Tensor, actions: Tensor, temperature: float, measure: bool
    ) -> tuple[Tensor, Tensor]:
        logprobs, entropies, direction = stream_logprobs(hidden, matrix, actions, temperature, measure, gradients=True)
        assert direction is not None
        ctx.save_for_backward(direction)
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (direction,) = ctx.saved_tensors
        return (direction * grads[0][:, None]).to(direction.dtype), None, None, None, None
