"""vLLM servers that sample for a training: how much fits on each."""

from __future__ import annotations

from dataclasses import dataclass

from ppolm.estimate.model_shape import ModelShape
from ppolm.planning.step_time import Speed

CLAIMED = 0.9
"""Share of a device's memory that a server claims: vLLM's default."""
ROWS = 256
"""Most rows at once: vLLM's default."""
WORKING = 2 * 2**30
"""Bytes that a server needs beside weights and cache: recorded kernels, activations. Assumed."""
VERSIONS = 3
"""Adapters that are loaded at once (``--max-loras 3``)."""
ITEM = 2
"""Bytes of a number: servers hold weights, adapters and cache in bfloat16."""


@dataclass(frozen=True)
class Pool:
    """Servers of one kind."""

    count: int
    hardware: str
    memory: int | None
    """Bytes of each device, if known."""
    speed: Speed


@dataclass(frozen=True)
class ServerMemory:
    """Bytes on a server, and how many rows of full length fit beside the weights; 0 if the base does not fit."""

    weights: int
    adapters: int
    working: int
    cache: int
    rows: int
    available: int | None

    @property
    def peak(self) -> int:
        """All of it."""
        return self.weights + self.adapters + self.working + self.cache


def server_memory(pool: Pool, shape: ModelShape, width: int) -> ServerMemory:
    """What a server holds: rows = (0.9 · memory − weights − adapters − working) / (2 · L · kv · bytes · width)."""
    weights, adapters = ITEM * shape.parameters, VERSIONS * ITEM * shape.adapter
    row = 2 * shape.layers * shape.kv * ITEM * width
    available = None if pool.memory is None else int(CLAIMED * pool.memory)
    left = ROWS * row if available is None else available - weights - adapters - WORKING
    rows = max(0, min(ROWS, left // row))
    return ServerMemory(weights, adapters, WORKING, max(0, left), rows, available)
