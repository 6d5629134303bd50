"""Peak memory of a PPO step in bytes: base, adapters, and what the token budgets limit."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from ppolm.base_setup.activation_memory import FLOAT, Sizes
from ppolm.base_setup.device import GAPS, PROGRAM, pass_cost, scoring_tokens, state_precision
from ppolm.batches.sequences import split_by_tokens
from ppolm.config import PPOConfig
from ppolm.estimate.model_shape import ModelShape
from ppolm.estimate.packed_weights import NF4, Packed
from ppolm.kernels.decode_layers import COPY_BYTES, PAYS_AFTER
from ppolm.kernels.products import TILE
from ppolm.kernels.token_logprobs import LOGIT_CHUNK
from ppolm.rollout.slot_sampler import PROMPT_TOKENS

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Lengths:
    """Longest and mean prompt length, in tokens."""

    longest: int
    mean: float
    counted: tuple[int, ...] = ()
    """Lengths of some of the prompts, if they are here."""

    def widths(self, rows: int, response: int) -> list[int]:
        """Tokens of so many sequences with prompts like those that were counted, or of the mean length."""
        sizes = sorted(self.counted) or [round(self.mean)]
        return [sizes[(2 * row + 1) * len(sizes) // (2 * rows)] + response for row in range(rows)]


@dataclass(frozen=True)
class Devices:
    """The devices that train together, a process on each, and what each of them holds of the base."""

    count: int = 1
    sharded: bool = False
    """Each holds 1/count of every block and gathers a block when it computes it, rather than all of them."""


ONE = Devices()
GATHERED = 2
"""Blocks of a sharded base that are whole at a time: the one that is computed, and the next."""


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
    recomputes: bool = False
    """Whether the blocks of the largest training pass are recomputed (gradient checkpointing)."""

    @property
    def peak(self) -> int:
        """Everything that stays allocated plus the largest phase of a step, with fragmentation."""
        model = self.base + self.adapters + self.trunk + max(self.generation, self.scoring, self.training)
        return self.program + int(model * (1 + GAPS))


def step_memory(
    shape: ModelShape,
    config: PPOConfig,
    lengths: Lengths,
    dtype: torch.dtype,
    adapters: int,
    device: torch.device = CPU,
    available: int | None = None,
    devices: Devices = ONE,
    program: int | None = None,
) -> Memory:
    """The memory of a step with this many adapters, on each device, which has ``available`` bytes, if that is known.

    Several devices share the sequences of each phase: batch / count responses, and minibatch / count in an update.
    ``program``: bytes of Python and its libraries, if they are not to be those of this process.
    """
    sizes = Sizes(dtype.itemsize, state_precision(dtype, device, shape.block.fused).itemsize)
    width = lengths.longest + config.max_new_tokens
    rows = -(-config.batch_size // devices.count)
    tokens = rows * (lengths.mean / config.samples_per_prompt + config.max_new_tokens)
    read = max(width, scoring_tokens(device, config.microbatch_tokens))
    below = shape.layers > shape.trained_layers
    if program is None:
        program = program_size() if device.type == "cpu" else PROGRAM
    base = base_size(shape, config, dtype, devices)
    owned = FLOAT * adapter_numbers(shape, adapters, config.reference_adapter is not None)
    trunk = int(min(config.trunk_mib * 2**20, tokens * shape.hidden * sizes.states)) if below else 0
    left = math.inf if available is None else (available - program) / (1 + GAPS) - base - owned - trunk
    start = pass_cost(device, round(shape.weights.active))
    training, recomputes = _training(shape, config, lengths, sizes, left, devices.count, start)
    return Memory(
        program=program,
        base=base,
        adapters=owned,
        trunk=trunk,
        generation=_generation(shape, config, rows, width, tokens, sizes) + unsharded(shape, config, dtype, devices),
        scoring=_pass(shape, read, tokens, sizes) + _logits(shape, tokens),
        training=training,
        recomputes=recomputes,
    )


def base_size(shape: ModelShape, config: PPOConfig, dtype: torch.dtype, devices: Devices = ONE) -> int:
    """Bytes of the frozen weights on a device: with ``base_bits`` the blocks' matrices are packed.

    blocks + rest, or sharded over N: blocks / N + rest + the blocks that are whole at a time. MLX has a whole copy.
    """
    blocks, rest = _weights(shape, config, dtype)
    copied = shape.parameters * dtype.itemsize if config.engine == "mlx" else 0
    share = 1 / devices.count + min(GATHERED, shape.layers) / shape.layers if devices.sharded else 1.0
    return int(blocks * min(1.0, share) + rest + copied)


def unsharded(shape: ModelShape, config: PPOConfig, dtype: torch.dtype, devices: Devices) -> int:
    """Bytes of a sharded base that have to be whole on each device while it samples, because no server does."""
    if not devices.sharded or config.engine != "local":
        return 0
    return max(0, sum(_weights(shape, config, dtype)) - base_size(shape, config, dtype, devices))


def adapter_numbers(shape: ModelShape, adapters: int, with_sft: bool) -> int:
    """Numbers of all adapters: their weights; of policy and value two moments, and a copy of weights and moments for
    undoing a step; and the gradient of the larger of the two."""
    both, rewards = shape.adapter + shape.value_adapter, adapters - 2 - with_sft
    loaded = shape.reward_adapters[: max(0, rewards)]
    scored = sum(loaded) + max(0, rewards - len(loaded)) * shape.value_adapter
    return shape.adapter * with_sft + scored + 6 * both + max(shape.adapter, shape.value_adapter)


def packed_by(shape: ModelShape, config: PPOConfig) -> Packed | None:
    """How the blocks' matrices are packed: by the model's authors, or because the settings say so."""
    return shape.packed or (Packed("base_bits", NF4, experts=False) if config.base_bits == 4 else None)


def block_bytes(shape: ModelShape, config: PPOConfig, dtype: torch.dtype, experts: float | None = None) -> float:
    """Bytes of a block's matrices as they are stored, with this many weights of ``experts``, or with all."""
    packed, weights = packed_by(shape, config), shape.weights
    each = dtype.itemsize if packed is None or packed.size is None else packed.size
    routed = each if packed is None or packed.experts else dtype.itemsize
    return weights.dense * each + (weights.experts if experts is None else experts) * routed


def _weights(shape: ModelShape, config: PPOConfig, dtype: torch.dtype) -> tuple[int, int]:
    """Bytes of the blocks' matrices, and of everything else: embeddings, norms, output matrix."""
    blocks = round(shape.layers * shape.block_weights)
    return round(shape.layers * block_bytes(shape, config, dtype)), (shape.parameters - blocks) * dtype.itemsize


def _generation(shape: ModelShape, config: PPOConfig, most: int, width: int, tokens: float, sizes: Sizes) -> int:
    """KV cache of all rows sampled at once, plus the larger of prefill and decoding (copied weights, token choice).

    Nothing where servers sample.
    """
    if config.engine == "vllm":
        return 0
    rows = min(most, max(1, config.rollout_tokens // width))
    cache = rows * width * shape.layers * 2 * shape.kv * sizes.states
    choice = rows * shape.vocab * (3 * FLOAT + 2 * 8)  # logits, their softmax, its sums in float64
    copied = 0.0
    if config.max_new_tokens >= PAYS_AFTER and shape.block.fused:
        head = shape.vocab * shape.hidden if sizes.weights < FLOAT else 0  # in float32 copying it gains nothing
        copied = min(COPY_BYTES, (shape.layers * shape.block_weights + head) * sizes.weights)
    return cache + max(_pass(shape, PROMPT_TOKENS, tokens, sizes), int(copied + choice))


def _pass(shape: ModelShape, budget: int, tokens: float, sizes: Sizes) -> int:
    """Peak of a forward pass without gradients, during which only one block's tensors exist at a time."""
    block = shape.block
    routed = block.chosen * (2 * block.hidden + 3 * block.expert)
    each = 4 * block.hidden + 2 * block.heads + 3 * block.inner + routed
    return int(min(budget, tokens) * each * sizes.states) + block.fixed(1, sizes)


def _training(
    shape: ModelShape, config: PPOConfig, lengths: Lengths, sizes: Sizes, left: float, devices: int, start: int
) -> tuple[int, bool]:
    """Peak of the largest pass with gradients, and whether its blocks are recomputed because of the ``left`` bytes."""
    answers = -(-min(config.minibatch_size, config.batch_size) // devices)
    rows, tokens = _largest_pass(config, lengths, answers, start)
    wanted = min(tokens, rows * config.max_new_tokens)
    asked, layers = config.gradient_checkpointing, shape.trained_layers
    kept = tokens * shape.block.per_token(layers, sizes) + shape.block.fixed(layers, sizes)
    recomputes = asked == "on" or (asked == "auto" and kept > left)
    size = shape.block.training(layers, tokens, wanted, sizes, recomputes)
    return size + _logits(shape, wanted), recomputes


def _largest_pass(config: PPOConfig, lengths: Lengths, answers: int, start: int) -> tuple[int, float]:
    """Sequences and tokens of the largest pass of a minibatch: as a training splits it, where lengths are known.

    On a CPU, which starts a pass at once, sequences of different lengths are read apart to save padding. ``start``: the
    tokens that cost as much as one more pass. Answers to one prompt may share a row, so that nothing is split.
    """
    longest = lengths.longest + config.max_new_tokens  # a sequence is never split
    if config.samples_per_prompt > 1 or not lengths.counted:
        whole = answers * (lengths.mean / config.samples_per_prompt + config.max_new_tokens)
        return answers, max(min(config.microbatch_tokens, whole), longest)
    widths = lengths.widths(answers, config.max_new_tokens)
    passes = [
        (len(one), float(len(one) * widths[one[0]])) for one in split_by_tokens(widths, config.microbatch_tokens, start)
    ]
    return max([(1, float(longest)), *passes], key=lambda found: found[1])


def _logits(shape: ModelShape, tokens: float) -> int:
    """One tile of logits and of the values computed from them, in float32."""
    return int(min(tokens, LOGIT_CHUNK // TILE) * min(shape.vocab, TILE) * 2 * FLOAT)


def program_size() -> int:
    """Bytes that this process uses now: Python, torch and loaded libraries."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, AttributeError):  # not Linux
        return PROGRAM
