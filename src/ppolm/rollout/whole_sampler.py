"""Sampling without a cache: the whole text is processed again for every token. Slow, but right for any causal model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ppolm.batches.sequences import TokenSequences
from ppolm.rollout.sampling import Sampled, Sampling, choose_unchecked, exact_dtype, refuse_non_finite
from ppolm.rollout.sampling_base import SamplingBase


@torch.no_grad()
def sample_whole(
    setup: SamplingBase, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor
) -> list[Sampled]:
    """One response per prompt from the active role, for models whose cache cannot be trusted with padded batches."""
    texts = [list(prompt) for prompt in prompts]
    logprobs: list[list[float]] = [[] for _ in prompts]
    running, exact = list(range(len(prompts))), exact_dtype(setup.device)
    for step in range(sampling.max_new_tokens):
        states, order = _last_states(setup, [texts[i] for i in running], sampling.batch_tokens)
        running = [running[i] for i in order]
        draws = uniforms[running, step].to(setup.device, exact)
        chosen, logprob = choose_unchecked(setup.project(states), draws, sampling)
        both = torch.stack([chosen.to(exact), logprob.to(exact)]).tolist()  # one wait; ids are small numbers
        refuse_non_finite(all(map(math.isfinite, both[1])))
        for i, token, value in zip(running, *both, strict=True):
            texts[i].append(int(token))
            logprobs[i].append(value)
        running = [i for i in running if texts[i][-1] not in setup.tokenizer.eos_ids]
        if not running:
            break
    return [
        Sampled(text[len(prompt) :], values, text[-1] in setup.tokenizer.eos_ids)
        for text, prompt, values in zip(texts, prompts, logprobs, strict=True)
    ]


def _last_states(setup: SamplingBase, texts: list[list[int]], token_budget: int) -> tuple[Tensor, list[int]]:
    """The hidden state [B, d] at the end of each text, and which text each row of them belongs to."""
    nothing = torch.zeros(0, dtype=torch.long)
    sequences = TokenSequences([torch.tensor(text) for text in texts], [nothing] * len(texts))
    batches = list(sequences.microbatches(token_budget, setup.tokenizer.pad_id, setup.device, "ends"))
    states = torch.cat([setup.wanted_states(batch.input_ids, batch) for batch in batches])
    return states, torch.cat([batch.rows for batch in batches]).tolist()
