"""The in-process samplers, by name."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ppolm.names import SamplerKind
from ppolm.rollout.kv_sampler import sample_sequences
from ppolm.rollout.sampling import Sampled, Sampling
from ppolm.rollout.sampling_base import SamplingBase
from ppolm.rollout.slot_sampler import SlotSampler
from ppolm.rollout.whole_sampler import sample_whole


def sample(
    kind: SamplerKind, setup: SamplingBase, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor
) -> list[Sampled]:
    """One response per prompt from the active role; row i of ``uniforms`` decides the draws of prompt i."""
    if kind == "slots":
        return SlotSampler(setup, prompts, sampling, uniforms).sample()
    return (sample_sequences if kind == "cache" else sample_whole)(setup, prompts, sampling, uniforms)
