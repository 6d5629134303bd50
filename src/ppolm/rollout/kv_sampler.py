"""Batched sampling in this process with a KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppolm.batches.sequences import split_by_tokens
from ppolm.rollout.sampling import Sampled, Sampling, choose_unchecked, exact_dtype, refuse_non_finite
from ppolm.rollout.sampling_base import SamplingBase


@torch.no_grad()
def sample_sequences(
    setup: SamplingBase, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor
) -> list[Sampled]:
    """One response per prompt from the active role.

    Row i of ``uniforms`` decides the draws of prompt i, so a response does not depend on how prompts are grouped.
    """
    lengths = [len(prompt) + sampling.max_new_tokens for prompt in prompts]
    responses: dict[int, Sampled] = {}
    # Every group runs its own loop over tokens, so as few groups as possible.
    for group in split_by_tokens(lengths, sampling.batch_tokens, pass_cost=sum(lengths)):
        sampled = _sample_group(setup, [prompts[i] for i in group], sampling, uniforms[group])
        responses.update(zip(group, sampled, strict=True))
    return [responses[i] for i in range(len(prompts))]


def _sample_group(
    setup: SamplingBase, prompts: list[Sequence[int]], sampling: Sampling, uniforms: Tensor
) -> list[Sampled]:
    input_ids, mask = left_pad(prompts, setup.tokenizer.pad_id, setup.device)
    eos_ids = torch.tensor(setup.tokenizer.eos_ids, dtype=torch.long, device=setup.device)
    uniforms = uniforms.to(setup.device, exact_dtype(setup.device))
    # Positions follow the mask, not the padded index: the first real token of every row is at position 0.
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    padded = len(set(map(len, prompts))) > 1
    cache, tokens, logprobs = None, [], []
    running = torch.ones(len(prompts), dtype=torch.bool, device=setup.device)
    counts = torch.zeros(len(prompts), dtype=torch.long, device=setup.device)
    for step in range(sampling.max_new_tokens):
        output = setup.blocks(
            padded=padded,
            input_ids=input_ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        )
        cache = output.past_key_values
        chosen, logprob = choose_unchecked(setup.project(output.last_hidden_state[:, -1]), uniforms[:, step], sampling)
        tokens.append(chosen)
        logprobs.append(logprob)
        counts += running
        running = running & ~torch.isin(chosen, eos_ids)
        finite, goes_on = torch.stack([logprob.isfinite().all(), running.any()]).tolist()  # the only wait per token
        refuse_non_finite(finite)
        if not goes_on:
            break
        input_ids = chosen[:, None]
        mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=1)
        positions = positions[:, -1:] + 1
    ids, lps = torch.stack(tokens, 1).tolist(), torch.stack(logprobs, 1).tolist()
    ended = (~running).tolist()
    return [Sampled(ids[i][:n], lps[i][:n], ended[i]) for i, n in enumerate(counts.tolist())]


def left_pad(prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and attention mask [B, T], padded on the left so that all prompts end where generation begins."""
    width = max(map(len, prompts))
    input_ids = torch.full((len(prompts), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(prompts), width), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        input_ids[row, width - len(prompt) :] = torch.tensor(list(prompt))
        mask[row, width - len(prompt) :] = 1
    return input_ids.to(device), mask.to(device)
