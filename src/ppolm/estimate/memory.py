"""How much memory a PPO step takes at its peak, in bytes: base, adapters, and what the token budgets bound."""

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
"""Share of memory that the allocator holds and cannot use again: chosen so that two measured peaks are met."""
FLOAT = 4
"""Adapters, gradients, moments and log-probabilities are in float32."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of the longest prompt and of a mean one."""

    longest: int
    mean: float


@dataclass(frozen=True)
class Memory:
    """Bytes by what holds them. The parts of a step follow each other; the others stay."""

    program: int
    base: int
    adapters: int
    """Weights of all roles, moments of policy and value, gradients of one; and what an abandoned step goes back to:
    weights and moments of policy and value as they were before it."""
    trunk: int
    """Hidden states below the trained layers."""
    generation: int
    scoring: int
    training: int

    @property
    def peak(self) -> int:
        """All that stays, and the largest part of a step; and what lies free between them."""
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
        base=shape.parameters * size,
        adapters=shape.adapter * FLOAT * (adapters + 2 * 2 + 1 + 2 * 3),
        trunk=int(min(config.trunk_mib * 2**20, tokens * shape.hidden * FLOAT)) if below else 0,
        generation=_generation(shape, config, width, tokens, size),
        scoring=_pass(shape, config.microbatch_tokens, tokens) + _logits(shape, tokens),
        training=_training(shape, config, lengths, size),
    )


def _generation(shape: ModelShape, config: PPOConfig, width: int, tokens: float, size: int) -> int:
    """Keys and values of all rows that run at once; a pass over prompts, or copied weights and the choice of tokens."""
    rows = min(config.batch_size, max(1, config.rollout_tokens // width))
    cache = rows * width * shape.layers * 2 * shape.kv * FLOAT
    choice = rows * shape.vocab * (3 * FLOAT + 2 * 8)  # logits, their softmax, its sums in float64
    copied = 0.0
    if config.max_new_tokens >= PAYS_AFTER:
        head = shape.vocab * shape.hidden if size < FLOAT else 0  # in float32 there is nothing to gain by it
        copied = min(COPY_BYTES, (shape.layers * shape.block_weights + head) * size)
    return cache + max(_pass(shape, PROMPT_TOKENS, tokens), int(copied + choice))


def _pass(shape: ModelShape, budget: int, tokens: float) -> int:
    """The widest point of a forward pass: one block's tensors are there at a time."""
    return int(min(budget, tokens) * (4 * shape.hidden + 2 * shape.heads + 3 * shape.inner) * FLOAT)


def _training(shape: ModelShape, config: PPOConfig, lengths: Lengths, size: int) -> int:
    """What the backward pass needs of every trained block, and its own widest point.

    Per token, in the precision of the weights: its input, both norms, the sum after attention; queries and keys
    before their norms, attention's output before its product; gate, up, and their product. In float32 what attention
    itself needs: queries, keys, values, output.
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
    """A tile of logits and of what becomes of them, in float32."""
    return int(min(tokens, LOGIT_CHUNK // TILE) * min(shape.vocab, TILE) * 2 * FLOAT)


def program_size() -> int:
    """Bytes that this process takes now: Python, torch and what they have loaded."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, AttributeError):  # not Linux: what it usually is
        return 600 * 2**20
