"""The next token of every row from MLX's logits: our own draw, after MLX has left of the logits only what it needs."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import torch
from torch import Tensor

from ppolm.rollout.sampling import Sampling, choose_tokens, draw, refuse_non_finite


def choose_from(logits: mx.array, uniforms: Tensor, sampling: Sampling) -> tuple[list[int], list[float]]:
    """What ``choose_tokens`` gives for the same ``logits`` [B, V] and ``uniforms`` [B].

    With top-k or greedy decoding only k numbers per row leave the device: to search a vocabulary of 150,000 on the host
    would take longer than a small model takes to compute it.
    """
    if sampling.greedy or 0 < sampling.top_k < logits.shape[-1]:
        return _choose_among_few(logits.astype(mx.float32) / sampling.temperature, uniforms, sampling)
    tokens, logprobs = choose_tokens(_to_torch(logits.astype(mx.float32)), uniforms, sampling)
    return tokens.tolist(), logprobs.tolist()


def _choose_among_few(scaled: mx.array, uniforms: Tensor, sampling: Sampling) -> tuple[list[int], list[float]]:
    if sampling.greedy:
        ids = mx.argmax(scaled, axis=-1, keepdims=True)
    else:
        ids = mx.argpartition(-scaled, kth=sampling.top_k - 1, axis=-1)[:, : sampling.top_k]
    few, total = mx.take_along_axis(scaled, ids, axis=-1), mx.logsumexp(scaled, axis=-1, keepdims=True)
    values, order = _to_torch(few).sort(dim=-1, descending=True)
    # One candidate, as in greedy decoding, is drawn whatever the random number.
    position = draw(values, uniforms, top_k=0, top_p=sampling.top_p)[:, None]
    logprobs = values.gather(-1, position) - _to_torch(total)
    refuse_non_finite(bool(logprobs.isfinite().all()))
    tokens = _to_torch(ids).long().gather(-1, order.gather(-1, position))
    return tokens.squeeze(-1).tolist(), logprobs.squeeze(-1).tolist()


def _to_torch(values: mx.array) -> Tensor:
    return torch.from_numpy(np.array(values).astype(np.int64 if values.dtype == mx.uint32 else np.float32))
