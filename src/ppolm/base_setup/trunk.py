"""The blocks below the lowest adapter: frozen, so the same function for every role, in every epoch, in every step.

They run once per sequence. Their output is cached, and roles start above them.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from ppolm.base_setup.base_setup import BaseModelSetup
from ppolm.base_setup.capabilities import trying
from ppolm.base_setup.load_model import find_blocks
from ppolm.batches.sequences import Microbatch
from ppolm.kernels.replaced_forward import pass_on, standing_in

log = logging.getLogger(__name__)


class Trunk:
    """The lowest ``depth`` blocks of a base, and a cache of their output within ``budget`` bytes."""

    def __init__(self, setup: BaseModelSetup, blocks: nn.ModuleList, depth: int, budget: int) -> None:
        self.setup, self.depth = setup, depth
        self.lower, self.upper = list(blocks[:depth]), list(blocks[depth:])
        self.budget = budget
        settings = setup.text_config.to_dict().items()
        self.drops = any(value for name, value in settings if re.search("^(?!classifier).*(dropout|pdrop)", name))
        """Whether the blocks have dropout that is active in training mode."""
        self.kept: OrderedDict[bytes, Tensor] = OrderedDict()
        """States [t, d] of a prompt, or of an answer after its prompt; the least recently used come first."""
        self.bytes = 0

    def finish(self, batch: Microbatch) -> Tensor:
        """The wanted states [n, d] of a microbatch, from the upper blocks alone; they may have gradients."""
        states = self.states(batch)
        with standing_in(self.lower, pass_on):
            return self.setup.wanted_states(states, batch)

    @torch.no_grad()
    def states(self, batch: Microbatch) -> Tensor:
        """The input of the upper blocks [B, T, d]: from the cache, or computed and cached."""
        segments = () if self.drops and self.setup.causal_lm.training else batch.segments
        found = [part for part in (self._find(segment.key, segment.length) for segment in segments) if part is not None]
        if not segments or len(found) < len(segments):
            states = self.compute(batch.input_ids, batch.position_ids, batch.mask)
            for one in segments:
                self._keep(one.key, states[one.row, one.start : one.start + one.length])
            return states
        width = self.setup.hidden_size
        states = torch.zeros(*batch.input_ids.shape, width, dtype=found[0].dtype, device=self.setup.device)
        for one, part in zip(segments, found, strict=True):
            states[one.row, one.start : one.start + one.length] = part
        return states

    @torch.no_grad()
    def compute(self, input_ids: Tensor, position_ids: Tensor | None, mask: Tensor | None) -> Tensor:
        """The lower blocks' output for ids [B, T]."""
        seen: list[Tensor] = []

        def watch(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            seen.append(arguments[0] if arguments else named["hidden_states"])

        hook = self.upper[0].register_forward_pre_hook(watch, with_kwargs=True)
        try:
            with standing_in(self.upper, pass_on):
                self.setup.hidden_states(input_ids, position_ids, mask)
        finally:
            hook.remove()
        return seen[0]

    def forget(self) -> None:
        """Clear the cache. States computed in another microbatch may differ in the last bit: a resumed run must
        not find other ones than an uninterrupted run."""
        self.kept.clear()
        self.bytes = 0

    def size(self, tokens: int) -> int:
        """Bytes that the states of this many tokens take."""
        return tokens * self.setup.hidden_size * self.setup.state_dtype.itemsize

    def _find(self, key: bytes, length: int) -> Tensor | None:
        states = self.kept.get(key)
        if states is None or len(states) < length:
            return None
        self.kept.move_to_end(key)
        return states[:length]

    def _keep(self, key: bytes, states: Tensor) -> None:
        old = self.kept.pop(key, None)
        if old is not None:
            self.bytes -= old.nbytes
        self.kept[key] = states.clone()  # a view would keep the whole microbatch in memory
        self.bytes += states.nbytes
        while self.bytes > self.budget:
            self.bytes -= self.kept.popitem(last=False)[1].nbytes


@torch.no_grad()
def make_trunk(setup: BaseModelSetup, depth: int, budget: int) -> Trunk | None:
    """A trunk of the lowest ``depth`` blocks; None if a model does more with its input than pass it to the blocks."""
    trunk = Trunk(setup, find_blocks(setup.causal_lm)[1], depth, budget)
    refusal = trunk_refusal(setup, trunk)
    if refusal is None:
        return trunk
    setup.capabilities = setup.capabilities.with_path("shared_trunk", refusal)
    log.warning("%s computes its lower blocks for each role: %s.", setup.name, refusal)
    return None


def trunk_refusal(setup: BaseModelSetup, trunk: Trunk) -> str | None:
    """Why a model cannot start above its lower blocks, or None."""
    return _hands_on_states(setup, trunk) or trying(setup, "shared_trunk", lambda: _try_trunk(setup, trunk))


def _try_trunk(setup: BaseModelSetup, trunk: Trunk) -> str | None:
    trial = setup.trial
    for batches in (trial.padded(setup), trial.packed(setup) if setup.capabilities.has("packed_prompts") else []):
        for batch in batches:
            states = trunk.finish(batch).float().cpu()
            trunk.forget()
            refusal = setup.rounding.refusal(setup.project_all(states), trial.logits[batch.rows])
            if refusal is not None:
                return refusal
    return None


def _hands_on_states(setup: BaseModelSetup, trunk: Trunk) -> str | None:
    """Why a block of this model cannot be skipped by passing on its input, or None: it must map states to states."""
    if getattr(setup.text_config, "hidden_size_per_layer_input", 0):  # Gemma 3n and 4: embeddings for each block
        return "its blocks also read the token ids, not only the output of the block below"
    blocks, seen = [*trunk.lower, *trunk.upper], []
    width = setup.causal_lm.get_input_embeddings().weight.shape[1]

    def watch(_: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        hands_on = bool(given) and isinstance(output, Tensor) and output.shape == given[0].shape
        seen.append(hands_on and output.dim() == 3 and output.shape[-1] == width)

    hooks = [block.register_forward_hook(watch) for block in blocks]
    try:
        ids = torch.arange(3, device=setup.device)[None] % setup.text_config.vocab_size
        setup.hidden_states(ids)
    finally:
        for hook in hooks:
            hook.remove()
    if len(seen) != len(blocks) or not all(seen):
        return "its blocks do not map hidden states to hidden states of the embedding width"
    return None
