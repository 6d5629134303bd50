"""Peak memory of a PPO step in bytes: base, adapters, and what the token budgets limit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from ppolm.config import PPOConfig
from ppolm.estimate.model_shape import ModelShape
from ppolm.kernels.decode_layers import COPY_BYTES, PAYS_AFTER
from ppolm.kernels.products import TILE
from ppolm.kernels.token_logprobs import LOGIT_CHUNK
from ppolm.rollout.slot_sampler import PROMPT_TOKENS

GAPS = 0.1
"""Fraction of memory lost to allocator fragmentation, fitted to two measured peaks."""
FLOAT = 4
"""Adapters, gradients, moments and log-probabilities are in float32."""


@dataclass(frozen=True)
class Lengths:
    """Longest and mean prompt length, in tokens."""

    longest: int
    mean: float


@dataclass(frozen=True)
class Memory:
    """Bytes by use. Generation, scoring and training follow each other; the others stay allocated."""

    program: int
    base: int
    """Its weights; twice where another engine has a copy of its own."""
    adapters: int
    """Weights of all roles, moments of policy and value, gradients of one of them; and, for undoing a step, a copy of
    the weights and moments of policy and value from before it."""
    trunk: int
    """Hidden states below the trained layers."""
    generation: int
    scoring: int
    training: int

    @property
    def peak(self) -> int:
        """Everything that stays allocated plus the largest phase of a step, with fragmentation."""
        model = self.base + self.adapters + self.trunk + max(self.generation, self.scoring, self.training)
        return self.program + int(model * (1 + GAPS))


def step_memory(shape: ModelShape, config: PPOConfig, lengths: Lengths, dtype: torch.dtype, adapters: int) -> Memory:
    """The memory of a step with this many adapters. Hidden states are assumed to be in float32, as on a CPU."""
    size = dtype.itemsize
    width = lengths.longest + config.max_new_tokens
    tokens = config.batch_size * (lengths.mean / config.samples_per_prompt + config.max_new_tokens)
    below = shape.layers > shape.trained_layers
    return Memory(
        program=program_size(),
        base=shape.parameters * size * (1 if config.engine == "local" else 2),
        adapters=shape.adapter * FLOAT * (adapters + 2 * 2 + 1 + 2 * 3),
        trunk=int(min(config.trunk_mib * 2**20, tokens * shape.hidden * FLOAT)) if below else 0,
        generation=_generation(shape, config, width, tokens, size),
        scoring=_pass(shape, config.microbatch_tokens, tokens) + _logits(shape, tokens),
        training=_training(shape, config, lengths, size),
    )


def _generation(shape: ModelShape, config: PPOConfig, width: int, tokens: float, size: int) -> int:
    """KV cache of all rows sampled at once, plus the larger of prefill and decoding (copied weights, token choice)."""
    rows = min(config.batch_size, max(1, config.rollout_tokens // width))
    cache = rows * width * shape.layers * 2 * shape.kv * FLOAT
    choice = rows * shape.vocab * (3 * FLOAT + 2 * 8)  # logits, their softmax, its sums in float64
    copied = 0.0
    if config.max_new_tokens >= PAYS_AFTER:
        head = shape.vocab * shape.hidden if size < FLOAT else 0  # in float32 copying it gains nothing
        copied = min(COPY_BYTES, (shape.layers * shape.block_weights + head) * size)
    return cache + max(_pass(shape, PROMPT_TOKENS, tokens), int(copied + choice))


def _pass(shape: ModelShape, budget: int, tokens: float) -> int:
    """Peak of a forward pass, during which only one block's tensors exist at a time."""
    return int(min(budget, tokens) * (4 * shape.hidden + 2 * shape.heads + 3 * shape.inner) * FLOAT)


def _training(shape: ModelShape, config: PPOConfig, lengths: Lengths, size: int) -> int:
    """Activations of every trained block that are kept for the backward pass, and the backward pass's own peak.

    Per token, in the precision of the weights: the block's input, both norms, the sum after attention; queries and keys
    before their norms, attention's output before its projection; gate, up, and their product. In float32, what
    attention itself needs: queries, keys, values, output.
    """
    answers = min(config.minibatch_size, config.batch_size)
    tokens = min(config.microbatch_tokens, answers * (lengths.mean / config.samples_per_prompt + config.max_new_tokens))
    rough = 4 * shape.hidden + 2 * shape.heads + shape.kv + 3 * shape.inner
    kept = rough * size + (2 * shape.heads + 2 * shape.kv) * FLOAT
    wanted = min(tokens, answers * config.max_new_tokens)
    last = tokens * (2 * shape.hidden * size + 3 * shape.kv * FLOAT) + wanted * kept
    states = int((shape.trained_layers - 1) * tokens * kept + last)
    return states + _pass(shape, config.microbatch_tokens, tokens) + _logits(shape, wanted)


def _logits(shape: ModelShape, tokens: float) -> int:
    """One tile of logits and of the values computed from them, in float32."""
    return int(min(tokens, LOGIT_CHUNK // TILE) * min(shape.vocab, TILE) * 2 * FLOAT)


def program_size() -> int:
    """Bytes that this process uses now: Python, torch and loaded libraries."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, AttributeError):  # not Linux: a typical value
        return 600 * 2**20
