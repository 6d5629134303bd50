"""One response token by token, for somebody who reads along."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ppolm.names import SamplerKind
from ppolm.rollout.sampling import Sampling, choose_tokens
from ppolm.rollout.sampling_base import SamplingBase
from ppolm.rollout.whole_sampler import sample_whole


def stream(
    kind: SamplerKind, setup: SamplingBase, prompt: Sequence[int], sampling: Sampling, uniforms: Tensor
) -> Iterator[int]:
    """The tokens of a response of the active role, up to and including the first EOS, each as soon as it is drawn.

    ``uniforms`` [max_new_tokens] decide the draws, as in the other samplers.
    """
    for token in (_afresh if kind == "whole" else _cached)(setup, prompt, sampling, uniforms):
        yield token
        if token in setup.tokenizer.eos_ids:
            return


@torch.no_grad()
def _cached(setup: SamplingBase, prompt: Sequence[int], sampling: Sampling, uniforms: Tensor) -> Iterator[int]:
    """With the library's cache of keys and values."""
    ids, cache = torch.tensor([list(prompt)], device=setup.device), None
    for step in range(sampling.max_new_tokens):
        output = setup.blocks(input_ids=ids, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        draw = uniforms[step : step + 1].to(setup.device)
        chosen, _ = choose_tokens(setup.project(output.last_hidden_state[:, -1]), draw, sampling)
        yield int(chosen)
        ids = chosen[:, None]


def _afresh(setup: SamplingBase, prompt: Sequence[int], sampling: Sampling, uniforms: Tensor) -> Iterator[int]:
    """The whole text again for every token, for models whose cache cannot be trusted."""
    ids, one = list(prompt), dataclasses.replace(sampling, max_new_tokens=1)
    for step in range(sampling.max_new_tokens):
        (sampled,) = sample_whole(setup, [ids], one, uniforms[None, step : step + 1])
        ids += sampled.token_ids
        yield sampled.token_ids[0]
