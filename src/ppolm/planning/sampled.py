"""What each device or server samples in a step: operations of a token, and bytes that it reads for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ppolm.config import PPOConfig
from ppolm.estimate.memory import FLOAT, block_bytes, packed_by
from ppolm.estimate.model_shape import ModelShape
from ppolm.estimate.operations import Work
from ppolm.kernels.decode_layers import PAYS_AFTER
from ppolm.planning.serving import ITEM, ServerMemory
from ppolm.planning.step_time import Sampled

if TYPE_CHECKING:
    from ppolm.planning.plan import Case

MERGED_KERNELS, FUSED_KERNELS, PLAIN_KERNELS = 31.5, 50.5, 100.5
"""Kernels that a block of one new token starts: with decode matrices, with our blocks and adapters alone, with neither.
882, 1,414 and 2,814 for 28 blocks (``python -m bench.gpu_counts``, and the same with these paths off)."""
UNPACKING = 3 * 7
"""Kernels that unpack a block's seven matrices: their scales, the mean of those, and the weights. Assumed."""


def block_kernels(shape: ModelShape, config: PPOConfig) -> float:
    """Kernels that a block of one new token starts with these settings."""
    ours = shape.block.fused and not shape.block.copied
    if packed_by(shape, config) is not None:
        return PLAIN_KERNELS + UNPACKING
    if ours and "decode_matrices" not in config.fast_paths_off and config.max_new_tokens >= PAYS_AFTER:
        return MERGED_KERNELS
    return FUSED_KERNELS if shape.block.fused or not shape.block.copied else PLAIN_KERNELS


def rewritten_bytes(shape: ModelShape, config: PPOConfig, dtype: torch.dtype, converts: bool = False) -> float:
    """Bytes that a pass through all blocks writes and reads again besides the weights as they are stored.

    Packed weights are unpacked; experts with adapters are copied with those added; and a CPU without products in 16
    bits ``converts`` weights to float32.
    """
    size, weights = dtype.itemsize, shape.weights
    block = 0.0
    packed = packed_by(shape, config)
    if packed is not None:
        block += 2 * size * (weights.stored if packed.experts else weights.dense)
    elif converts:
        block += 2 * FLOAT * weights.active
    return shape.layers * (block + 2 * size * shape.block.merged)


def sampled_by(case: Case, work: Work, server: ServerMemory | None) -> Sampled:
    """What each device, or each server, samples in a step."""
    config, shape = case.config, case.shape
    width = case.lengths.longest + config.max_new_tokens
    parts = case.devices.count if case.pool is None else case.pool.count
    limit = max(1, config.rollout_tokens // width if server is None else server.rows)
    context = case.lengths.mean + case.response / 2
    tokens, longest = config.batch_size / parts * case.response, config.max_new_tokens
    rows = tokens / max(float(longest), tokens / limit)
    return Sampled(
        layers=shape.layers,
        tokens=tokens,
        longest=longest,
        limit=limit,
        prompts=work.prompts_alone() / parts,
        block=2 * (shape.weights.active + shape.adapter / shape.trained_layers) + 4 * shape.heads * context,
        output=2 * shape.hidden * shape.vocab,
        weights=token_bytes(case, rows),
        cached=2 * shape.layers * shape.kv * context * (case.dtype.itemsize if case.pool is None else ITEM),
    )


def token_bytes(case: Case, rows: float) -> float:
    """Bytes of weights that one more token of so many rows reads: of experts those that some row is sent to.

    Servers hold everything in 16 bits, whatever the trainers do. A second copy of the base is not read.
    """
    shape, size = case.shape, case.dtype.itemsize
    head, routed = shape.hidden * shape.vocab, shape.weights.read(rows) - shape.weights.dense
    if case.pool is not None:
        return ITEM * (shape.layers * (shape.weights.dense + routed) + head)
    if shape.block.merged:  # adapters are added to all experts, chosen or not
        routed = shape.weights.experts
    blocks = shape.layers * block_bytes(shape, case.config, case.dtype, routed)
    return blocks + head * size + case.rewritten
