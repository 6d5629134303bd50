"""How long a text a model can read."""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger(__name__)

STRETCHED = ("longrope", "dynamic")
"""Rotary positions whose angles change for all tokens as soon as a text is longer than the original context."""


def context_length(config: Any) -> int | None:
    """Longest sequence a model has positions for, if it says so.

    With positions that are stretched for long texts, at most the original context: beyond it, a long text would change
    the results of a short one in the same batch, and those of its own first tokens while it is sampled.
    """
    longest = getattr(config, "max_position_embeddings", None)
    original = [length for length in map(_original_length, _rope_settings(config)) if length]
    if not original:
        return longest
    limit = min(*original, longest or original[0])
    if longest and limit < longest:
        log.warning("Rotary positions are stretched beyond %d tokens: only texts up to there are read.", limit)
    return limit


def _rope_settings(config: Any) -> list[dict[str, Any]]:
    """The settings of rotary positions: one for all layers, or one per type of layer."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [value for value in found.values() if isinstance(value, dict)]
    shared = getattr(config, "original_max_position_embeddings", None)
    longest = getattr(config, "max_position_embeddings", None)
    defaults = {"original_max_position_embeddings": shared or longest}
    return [defaults | one for one in (nested or [found])]


def _original_length(rope: dict[str, Any]) -> int | None:
    stretched = (rope.get("rope_type") or rope.get("type")) in STRETCHED
    return rope["original_max_position_embeddings"] if stretched else None
