"""Gradient checkpointing: from which size of a pass on blocks are recomputed, and whether the model can do it."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from ppolm.base_setup.activation_memory import FLOAT, BlockShape, Sizes
from ppolm.base_setup.device import GAPS, PROGRAM, memory_size
from ppolm.batches.sequences import Microbatch
from ppolm.config import PPOConfig, SupervisedConfig
from ppolm.errors import ModelError
from ppolm.kernels.rounding import disagreement, rounding_limit
from ppolm.kernels.whole_weights import shard_of
from ppolm.messages import reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppolm.base_setup.base_setup import BaseModelSetup
    from ppolm.base_setup.lora_setup import AdapterSet

log = logging.getLogger(__name__)
GIB = 2**30


def plan_recomputation(
    adapters: AdapterSet, trained: Sequence[str | None], config: PPOConfig | SupervisedConfig
) -> None:
    """Decide which passes of a training recompute their blocks, as ``gradient_checkpointing`` says.

    auto: passes whose activations would not fit into the device's memory. All passes give the same gradients.
    """
    setup, asked = adapters.setup, config.gradient_checkpointing
    setup.recomputes_above = math.inf
    if asked == "off":
        return
    above = 0.0 if asked == "on" else _tokens_that_fit(adapters, trained)
    largest = max(config.microbatch_tokens, setup.context_length or math.inf)  # one sequence may exceed the budget
    if above >= largest:
        return
    refusal = recomputation_refusal(setup)
    if refusal is None:
        setup.recomputes_above = above
    elif asked == "on":
        raise ModelError(
            f"gradient_checkpointing is on, but {setup.name} ({type(setup.causal_lm).__name__}) cannot recompute its "
            f"blocks: {refusal}. Set gradient_checkpointing: off, and lower microbatch_tokens to save memory."
        )
    else:
        log.warning(
            "%s cannot recompute its blocks (%s): passes of more than %d tokens may not fit into memory. If they do "
            "not, lower microbatch_tokens.",
            *(setup.name, refusal, above),
        )


def _tokens_that_fit(adapters: AdapterSet, trained: Sequence[str | None]) -> float:
    """The largest pass with gradients that fits beside everything else; the log says what was counted."""
    setup = adapters.setup
    memory = memory_size(setup.device)
    if memory is None:
        log.info("gradient_checkpointing auto is off: the memory of %s is not known.", setup.device)
        return math.inf
    base, others = held(adapters, trained)
    left = max(0.0, (memory - PROGRAM) / (1 + GAPS) - base - others)
    largest = max(setup.block_list, key=lambda block: sum(one.numel() for one in block.parameters()))
    copied = not setup.capabilities.has("fused_adapters")
    shape = BlockShape.of(setup.text_config, largest, setup.fused, copied)
    lowest = min(0 if name is None else adapters.first_block(name) for name in trained)
    layers = len(setup.block_list) - lowest
    sizes = Sizes(setup.dtype.itemsize, setup.state_dtype.itemsize)
    each = shape.per_token(layers, sizes)
    above = max(0.0, left - shape.fixed(layers, sizes)) // each
    log.info(
        "gradient_checkpointing auto: of %.1f GiB on %s the program takes %.1f, the base %.1f, adapters, moments and "
        "kept states %.1f. That leaves %.1f GiB, less %.0f %% lost between tensors, for activations of %.2f MiB per "
        "token: passes of more than %d tokens recompute their %d trained blocks.",
        *(memory / GIB, setup.device, PROGRAM / GIB, base / GIB, others / GIB, left / GIB, 100 * GAPS),
        *(each / 2**20, above, layers),
    )
    return above


def held(adapters: AdapterSet, trained: Sequence[str | None]) -> tuple[int, int]:
    """Bytes of the base, and of all else that stays allocated during training: adapters, what each trained one needs
    (its gradient, two moments, and copies of it and the moments, for undoing a step), and the trunk's states."""
    every = list(adapters.setup.causal_lm.parameters())
    own = {id(one) for name in adapters.names for one in adapters.parameters(name).values()}
    base = sum(shard_of(one).nbytes for one in every if id(one) not in own)
    if adapters.setup.shards is not None:
        base += 2 * adapters.setup.shards.largest  # the block that is computed, and the next one on its way
    size = sum(one.nbytes for one in every if id(one) in own)
    for name in trained:
        weights = every if name is None else adapters.parameters(name).values()
        size += sum(6 * one.numel() * FLOAT for one in weights)
    return base, size + (adapters.trunk.budget if adapters.trunk is not None else 0)


def recomputation_refusal(setup: BaseModelSetup) -> str | None:
    """Why a model's blocks cannot be recomputed, or None: the gradient of a trial text must be the same either way."""
    packed = setup.trial.packed(setup) if setup.capabilities.has("packed_prompts") else []
    before = setup.recomputes_above
    try:
        for batch in (*setup.trial.padded(setup), *packed):
            found = []
            for above in (math.inf, 0.0):
                setup.recomputes_above = above
                found.append(_gradient(setup, batch))
            off, limit = disagreement(found[1], found[0]), rounding_limit(setup.dtype)
            if not off <= limit:
                return f"gradients are off by {off:.1g} of their size, {limit:g} is rounding"
    except CheckpointError as error:
        return f"a block computed something else the second time: {reason(error, 200)}"
    finally:
        setup.recomputes_above = before
    return None


def _gradient(setup: BaseModelSetup, batch: Microbatch) -> Tensor:
    """The gradient [B T, d] of a fixed sum of hidden states with respect to the embedded tokens."""
    seen: list[Tensor] = []

    def watch(_: Any, __: Any, output: Tensor) -> None:
        seen.append(output.requires_grad_())

    with torch.enable_grad(), _hooked(setup.causal_lm.get_input_embeddings(), watch):
        states = setup.wanted_states(batch.input_ids, batch).float()
        factors = torch.linspace(-1, 1, states.numel()).view_as(states).to(states.device)
        (gradient,) = torch.autograd.grad((states * factors).sum(), seen[:1])
    return gradient.flatten(0, 1).float().cpu()


@contextmanager
def _hooked(module: Any, watch: Any) -> Iterator[None]:
    hook = module.register_forward_hook(watch)
    try:
        yield
    finally:
        hook.remove()
