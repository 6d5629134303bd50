"""Which fast paths a loaded model uses: decided once, here, by comparison with the model's own code.

A path is used only if its numbers are those of the model's own forward pass, token by token. A refusal says why. An
error while a path is tried is an error, not a reason to run without it: a run that is silently slower, or out of
memory, helps nobody. The setting ``without`` turns single paths off, and ``plain`` all but the library's cache.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from ppolm.base_setup.four_bits import PACKED, has_packed_weights
from ppolm.base_setup.load_model import find_blocks
from ppolm.base_setup.trial_text import LONGEST, Trial, states_of
from ppolm.config.model_settings import FastPath
from ppolm.errors import ModelError
from ppolm.kernels.attention import MASKED, use_grouped_attention
from ppolm.kernels.fused_block import fuse_blocks, unfuse_blocks
from ppolm.names import SamplerKind
from ppolm.rollout.sampler_check import sampler_refusal

if TYPE_CHECKING:
    from ppolm.base_setup.base_setup import BaseModelSetup

log = logging.getLogger(__name__)

FAST_PATHS: tuple[FastPath, ...] = get_args(FastPath)
READS_WEIGHTS: tuple[FastPath, ...] = ("fused_adapters", "fused_blocks", "decode_matrices")
"""Paths that multiply by a layer's weight themselves instead of calling the layer."""
ATTENTION_LAYERS = {"full_attention", "sliding_attention", "chunked_attention", "attention"}
"""Types of layers that keep nothing of a text but keys and values."""


@dataclass(frozen=True)
class Capabilities:
    """The fast paths that a loaded model uses. Recorded with every run."""

    on: tuple[FastPath, ...] = ()
    """The fast paths in use."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why the others are not used."""
    attention: str = ""
    """The attention implementation, by the library's name for it or ours."""
    products: str = ""
    """Precision of products of many rows."""
    window: int | None = None
    """How many tokens back the model's attention reaches, if bounded: our masks would let it reach further."""

    def has(self, path: FastPath) -> bool:
        """Whether a fast path is in use."""
        return path in self.on

    def masks(self, path: FastPath, longest: int) -> bool:
        """Whether a path that gives the model our own mask may be used for sequences of up to ``longest`` tokens."""
        return self.has(path) and (self.window is None or longest <= self.window)

    def sampler_for(self, longest: int) -> SamplerKind:
        """The sampler for sequences of up to ``longest`` tokens."""
        if self.masks("slot_sampler", longest):
            return "slots"
        return "cache" if self.has("library_cache") else "whole"

    def with_path(self, path: FastPath, refusal: str | None) -> Capabilities:
        """The same with one more path, or with the reason why it is not used."""
        on = tuple(one for one in self.on if one != path)
        if refusal is None:
            return dataclasses.replace(self, on=(*on, path))
        return dataclasses.replace(self, on=on, refusals={**self.refusals, path: refusal})

    def to_dict(self) -> dict[str, Any]:
        """In a form that JSON can hold."""
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items()}

    def __str__(self) -> str:
        used = ", ".join(self.on) or "nothing but the library's own code"
        refused = "; ".join(f"no {name}: {why}" for name, why in self.refusals.items())
        return f"{used} ({refused})" if refused else used


def warn_of_other_capabilities(setup: BaseModelSetup, saved: Mapping[str, Any] | None, where: Path) -> None:
    """Warn if an interrupted training used other fast paths: its numbers are the same up to rounding."""
    if saved is not None and set(saved["on"]) != set(setup.capabilities.on):
        log.warning(
            "%s was computed with %s, here it is %s: the rest of the run may differ in the last bits.",
            *(where, ", ".join(saved["on"]) or "plain code", ", ".join(setup.capabilities.on) or "plain code"),
        )


def find_capabilities(setup: BaseModelSetup, trial: Trial, without: Sequence[FastPath]) -> Capabilities:
    """Try every fast path on a loaded base without adapters, and use those that agree."""
    found = Capabilities(window=smallest_window(setup.text_config))
    for path, refusal in _decisions(setup, trial, without):
        found = setup.capabilities = found.with_path(path, refusal)
    attention = setup.causal_lm.config._attn_implementation
    return dataclasses.replace(found, attention=str(attention), products=setup.precision["products"])


def _decisions(
    setup: BaseModelSetup, trial: Trial, without: Sequence[FastPath]
) -> Iterator[tuple[FastPath, str | None]]:
    """Each path with the reason why it is not used, if any, in the order in which they build on each other."""

    def decide(path: FastPath, attempt: Callable[[], str | None]) -> tuple[FastPath, str | None]:
        if path in without:
            return path, "turned off"
        return path, PACKED if packed and path in READS_WEIGHTS else trying(setup, path, attempt)

    packed = has_packed_weights(setup.causal_lm)

    yield decide("fused_adapters", lambda: None)  # compared where adapters are added (lora_linear)
    yield decide("grouped_attention", lambda: use_grouped_attention(setup.causal_lm))
    yield decide("fused_blocks", lambda: _try_fused_blocks(setup, trial))
    yield decide("last_block_alone", lambda: _try_last_block(setup, trial))
    yield decide("packed_prompts", lambda: _try_packed(setup, trial))
    yield decide("slot_sampler", lambda: _try_sampler(setup, "slots"))
    yield decide("decode_matrices", lambda: _try_decode_matrices(setup))
    # compared where its depth is known (trunk)
    yield decide("shared_trunk", lambda: None if setup.shards is None else "every block of a sharded base is fetched")
    yield decide("library_cache", lambda: _try_library_cache(setup))


def trying(setup: BaseModelSetup, path: FastPath, attempt: Callable[[], str | None]) -> str | None:
    """Why a path is refused, or None; an error is reported to the user."""
    try:
        return attempt()
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ModelError(
            f"Trying {path} on {setup.name} ({type(setup.causal_lm).__name__}) ended with {reason} "
            f"Set without: {path} (or plain: true) to run without it."
        ) from error


def check_padding(setup: BaseModelSetup, trial: Trial) -> None:
    """Refuse a model whose results for a text depend on what is to the right of it."""
    refusal = setup.rounding.refusal(setup.project_all(states_of(setup, trial.padded(setup))), trial.logits)
    if refusal is not None:
        raise ModelError(
            f"Model {setup.name} ({type(setup.causal_lm).__name__}) gives other numbers for a text in a padded batch "
            f"than for the text alone ({refusal}): it is not causal, and cannot be trained with PPO."
        )


def _try_fused_blocks(setup: BaseModelSetup, trial: Trial) -> str | None:
    blocks = find_blocks(setup.causal_lm)[1]
    refusal = fuse_blocks(setup.causal_lm, blocks, None if setup.shards is None else setup.shards.fusable)
    if refusal is None:
        setup.fused = True
        refusal = setup.rounding.refusal(setup.project_all(states_of(setup, trial.padded(setup))), trial.logits)
        if refusal is not None:
            setup.fused = False
            unfuse_blocks(blocks)
    return refusal


def _try_last_block(setup: BaseModelSetup, trial: Trial) -> str | None:
    if not setup.fused:
        return "blocks are the library's own"
    setup.last_block = find_blocks(setup.causal_lm)[1][-1]
    refusal = setup.rounding.refusal(setup.project_all(states_of(setup, trial.padded(setup))), trial.logits)
    if refusal is not None:
        setup.last_block = None
    return refusal


def _try_packed(setup: BaseModelSetup, trial: Trial) -> str | None:
    return refuses_masks(setup) or setup.rounding.refusal(
        setup.project_all(states_of(setup, trial.packed(setup))), trial.logits
    )


def refuses_masks(setup: BaseModelSetup) -> str | None:
    """Why a model cannot be given a mask that says what each token sees, or None."""
    model, window = setup.causal_lm, smallest_window(setup.text_config)
    kinds = set(getattr(setup.text_config, "layer_types", None) or ()) - ATTENTION_LAYERS
    takes = inspect.signature(setup.transformer.forward).parameters
    if kinds or model._is_stateful:
        return f"layers that keep more than keys and values ({', '.join(sorted(kinds)) or 'recurrent'})"
    if model.config._attn_implementation not in MASKED and not model._supports_attention_backend:
        return f"attention of its own kind ({model.config._attn_implementation})"
    if getattr(setup.text_config, "alibi", False):
        return "distances between tokens are counted from the padding (ALiBi)"
    if "position_ids" not in takes or "past_key_values" not in takes:
        return "its forward pass takes no positions or no cache"
    if window is not None and window < LONGEST:
        return f"attention reaches back only {window} tokens"
    return None


def _try_sampler(setup: BaseModelSetup, kind: SamplerKind) -> str | None:
    return (refuses_masks(setup) if kind == "slots" else None) or sampler_refusal(setup, kind)


def _try_decode_matrices(setup: BaseModelSetup) -> str | None:
    if not setup.capabilities.has("slot_sampler"):
        return "only the slot sampler uses them, and it is off"
    before = setup.capabilities
    setup.capabilities = before.with_path("decode_matrices", None)
    try:
        return _try_sampler(setup, "slots")
    finally:
        setup.capabilities = before


def _try_library_cache(setup: BaseModelSetup) -> str | None:
    if "past_key_values" not in inspect.signature(setup.transformer.forward).parameters:
        return "the model accepts no cache"
    with torch.no_grad():
        output = setup.blocks(input_ids=torch.zeros(1, 3, dtype=torch.long, device=setup.device), use_cache=True)
    if getattr(output, "past_key_values", None) is None:
        return "the model returns no cache"
    limits: list[Any] = [
        module.time_step_limit for module in setup.transformer.modules() if hasattr(module, "time_step_limit")
    ]
    if any(tuple(limit) != (0.0, float("inf")) for limit in limits):
        return "its state's time steps are clamped for whole texts but not for single tokens"
    return _try_sampler(setup, "cache")


def smallest_window(config: Any) -> int | None:
    """The fewest tokens that a layer's attention reaches back, under whatever name the configuration gives it.

    Or after which attention is scaled by positions that the model counts itself, ignoring those that we give it.
    """
    sizes = re.compile("(window|attention_chunk|floor_scale)(?!.*_layers$)")  # not the number of layers with one
    found = [value for name, value in vars(config).items() if sizes.search(name)]
    if getattr(config, "use_sliding_window", None) is False:  # a size that is not used
        return None
    return min((value for value in found if isinstance(value, int) and value > 1), default=None)
