"""Names that several rooms share."""

from __future__ import annotations

from typing import Literal

EMBEDDED = "embedded"
"""The name of the embedded model, its data and its reward model, wherever a name is expected."""

SamplerKind = Literal["slots", "cache", "whole"]
"""How responses are sampled: in rows of a cache that is allocated once; in left-padded batches with the library's
cache; or by processing the whole text again for every token, which works with any causal model."""
EngineName = Literal["local", "mlx", "vllm"]
"""What responses are sampled with: the policy itself, a copy of it in MLX, or vLLM servers. Built by
``engines.build_engine``."""
LoggerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]
"""Tools that the numbers of a run are logged to, besides its own folder. Built by ``hooks.loggers``."""
SERVED_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters that a vLLM server can be started with."""
TABLE_META = b"ppolm"
"""The metadata key of a stored token table: its prompts, which responses ended, and notes."""
