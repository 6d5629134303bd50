"""Sampling from an MLX model in batches with a KV cache, with our random numbers and our choice of tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import make_prompt_cache
from torch import Tensor

from ppolm.batches.sequences import split_by_tokens
from ppolm.engines.mlx_choice import choose_from
from ppolm.rollout.sampling import Sampled, Sampling
from ppolm.rollout.slot_sampler import CROWDED, PROMPT_TOKENS


def sample_with_mlx(
    model: nn.Module, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor, eos_ids: Collection[int]
) -> list[Sampled]:
    """One response per prompt; row i of ``uniforms`` [prompts, max_new_tokens] decides the draws of prompt i."""
    lengths = [len(prompt) + sampling.max_new_tokens for prompt in prompts]
    responses: dict[int, Sampled] = {}
    # Every group runs its own loop over tokens, so as few groups as possible.
    for group in split_by_tokens(lengths, sampling.batch_tokens, pass_cost=sum(lengths)):
        sampled = _sample_group(model, [prompts[i] for i in group], sampling, uniforms[group].cpu(), eos_ids)
        responses.update(zip(group, sampled, strict=True))
    mx.clear_cache()  # MLX keeps what it has freed; torch may need it for the update
    return [responses[i] for i in range(len(prompts))]


def _sample_group(
    model: nn.Module, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor, eos_ids: Collection[int]
) -> list[Sampled]:
    numbers: dict[tuple[int, ...], int] = {}
    own = [numbers.setdefault(tuple(prompt), len(numbers)) for prompt in prompts]
    cache = _read(model, list(numbers))
    _keep_rows(cache, own)  # a prompt that is given several times was computed once
    tokens: list[list[int]] = [[] for _ in prompts]
    logprobs: list[list[float]] = [[] for _ in prompts]
    rows, newest = list(range(len(prompts))), [prompt[-1] for prompt in prompts]
    for step in range(sampling.max_new_tokens):
        logits = model(mx.array(newest)[:, None], cache=cache)[:, -1]
        newest, values = choose_from(logits, uniforms[rows, step], sampling)
        running = []
        for place, (row, token, value) in enumerate(zip(rows, newest, values, strict=True)):
            if tokens[row] and tokens[row][-1] in eos_ids:
                continue
            tokens[row].append(token)
            logprobs[row].append(value)
            if token not in eos_ids:
                running.append(place)
        if not running:
            break
        if len(running) <= CROWDED * len(rows):
            _keep_rows(cache, running)
            rows, newest = [rows[place] for place in running], [newest[place] for place in running]
    return [Sampled(ids, own, ids[-1] in eos_ids) for ids, own in zip(tokens, logprobs, strict=True)]


def _read(model: nn.Module, prompts: Sequence[Sequence[int]]) -> list[Any]:
    """The cache of each layer after all tokens but the last of every prompt, which gives the first logits."""
    layers = zip(*(make_prompt_cache(model) for _ in prompts), strict=True)
    cache = [layer[0].merge(layer) for layer in layers]
    lengths = [len(prompt) - 1 for prompt in prompts]
    width = max(lengths)
    padding = [width - length for length in lengths]
    if any(padding):
        for layer in cache:
            layer.prepare(lengths=lengths, right_padding=padding)
    # Under a causal mask no real token sees the padding to its right.
    ids = mx.array([[*prompt[:-1], *[0] * extra] for prompt, extra in zip(prompts, padding, strict=True)], mx.int32)
    step = max(1, PROMPT_TOKENS // len(prompts))
    for start in range(0, width, step):
        model(ids[:, start : start + step], cache=cache)
        mx.eval([layer.state for layer in cache])  # only the cache is wanted: logits are never computed
    if any(padding):
        for layer in cache:
            layer.finalize()
    return cache


def _keep_rows(cache: list[Any], rows: list[int]) -> None:
    for layer in cache:
        layer.filter(mx.array(rows))
