"""How much memory a PPO step takes at its peak, in bytes: base, adapters, and what the token budgets bound."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch

from ppolm.config import PPOConfig
from ppolm.estimate.model_shape import ModelShape
from ppolm.models.token_logprobs import LOGIT_CHUNK
from ppolm.rollout.slot_sampler import PROMPT_TOKENS

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
    """Weights of all roles, moments of policy and value, gradients of one."""
    trunk: int
    """Hidden states below the trained layers."""
    generation: int
    scoring: int
    training: int

    @property
    def peak(self) -> int:
        """All that stays, and the largest part of a step."""
        return self.program + self.base + self.adapters + self.trunk + max(self.generation, self.scoring, self.training)


def step_memory(shape: ModelShape, config: PPOConfig, lengths: Lengths, dtype: torch.dtype, adapters: int) -> Memory:
    """The memory of a step with so many adapters."""
    size = dtype.itemsize
    width = lengths.longest + config.max_new_tokens
    tokens = config.batch_size * (lengths.mean / config.samples_per_prompt + config.max_new_tokens)
    below = shape.layers > shape.trained_layers
    return Memory(
        program=program_size(),
        base=shape.parameters * size,
        adapters=shape.adapter * FLOAT * (adapters + 2 * 2 + 1),
        trunk=int(min(config.trunk_mib * 2**20, tokens * shape.hidden * size)) if below else 0,
        generation=_generation(shape, config, width, tokens, size),
        scoring=_pass(shape, config.microbatch_tokens, tokens, size) + _logits(shape, tokens, size, gradients=False),
        training=_training(shape, config, lengths, size),
    )


def _generation(shape: ModelShape, config: PPOConfig, width: int, tokens: float, size: int) -> int:
    """Keys and values of all rows that run at once, and either a pass over prompts or the choice of tokens."""
    rows = min(config.batch_size, max(1, config.rollout_tokens // width))
    cache = rows * width * shape.layers * 2 * shape.kv * size
    choice = rows * shape.vocab * (size + 2 * FLOAT + 2 * 8)  # logits, their softmax, its sums in float64
    return cache + max(_pass(shape, PROMPT_TOKENS, tokens, size), choice)


def _pass(shape: ModelShape, budget: int, tokens: float, size: int) -> int:
    """The widest point of a forward pass: one block's tensors are there at a time."""
    return int(min(budget, tokens) * (4 * shape.hidden + 2 * shape.heads + 3 * shape.inner) * size)


def _training(shape: ModelShape, config: PPOConfig, lengths: Lengths, size: int) -> int:
    """What the backward pass needs of every trained block, and its own widest point.

    Per token of a block: its input, both norms, the sum after attention; queries and keys before and after their
    norms, values, attention's output; gate, up, and their product.
    """
    answers = min(config.minibatch_size, config.batch_size)
    tokens = min(config.microbatch_tokens, answers * (lengths.mean / config.samples_per_prompt + config.max_new_tokens))
    kept = 4 * shape.hidden + 3 * shape.heads + 3 * shape.kv + 3 * shape.inner
    wanted = min(tokens, answers * config.max_new_tokens)
    last = tokens * (2 * shape.hidden + 3 * shape.kv) + wanted * kept
    states = int((shape.trained_layers - 1) * tokens * kept + last) * size
    return states + _pass(shape, config.microbatch_tokens, tokens, size) + _logits(shape, wanted, size, gradients=True)


def _logits(shape: ModelShape, tokens: float, size: int, gradients: bool) -> int:
    """A chunk of logits, as the model gives them and in float32; again as gradients."""
    chunk = min(max(16 * shape.vocab, LOGIT_CHUNK), tokens * shape.vocab)
    return int(chunk * (size + 2 * FLOAT) * (2 if gradients else 1))


def program_size() -> int:
    """Bytes that this process has taken at most so far: Python, torch and what they have loaded."""
    try:
        import resource
    except ImportError:  # Windows
        return 500 * 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
