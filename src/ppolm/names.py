"""Words that several rooms share."""

from __future__ import annotations

from typing import Literal

EMBEDDED = "embedded"
"""The name of the embedded model, of its data and of its reward model, wherever a name is asked for."""

SamplerKind = Literal["slots", "cache", "whole"]
"""How responses are sampled: in rows of a cache that is allocated once; in left-padded batches with the library's
cache; or by reading the whole text again for every token, which any causal model can do."""
TABLE_META = b"ppolm"
"""The key of what a stored token table says beside its rows: prompts, which responses ended, notes."""
