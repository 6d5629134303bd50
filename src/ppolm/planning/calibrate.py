"""From times of two trial models to the speeds of a machine: pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from ppolm.estimate.model_shape import ModelShape
from ppolm.estimate.operations import Work
from ppolm.planning.step_time import Rate, Speed

LEAST = 0.02
"""Share of a pass that the output matrix takes at least: what is less drowns in the noise of a difference."""
LINK, LATENCY = 1e9, 1e-3
"""Bytes per second, and seconds of an exchange, between processes of one machine over gloo: assumed."""


@dataclass(frozen=True)
class Trial:
    """A model that was timed, and the work of its passes."""

    shape: ModelShape
    work: Work


@dataclass(frozen=True)
class Measured:
    """Seconds of a trial."""

    scoring: float
    update: float
    token: float
    """Of one more token of every row."""


Side = tuple[Trial, Measured]


def rate_of(blocks: tuple[float, float], output: float, seconds: tuple[float, float]) -> Rate:
    """Rates from the operations and times of two passes that differ in their blocks only.

    F = (ops₂ − ops₁) / (t₂ − t₁); what is left of t₁ is the output matrix's: F' = output / (t₁ − ops₁ / F).
    """
    share = blocks[0] / (blocks[0] + output)
    slowest = blocks[0] / max(seconds[0], 1e-9) / share  # all of the first pass at one speed
    difference = seconds[1] - seconds[0]
    speed = (blocks[1] - blocks[0]) / difference if difference > 0 else slowest
    rest = max(seconds[0] - blocks[0] / speed, LEAST * seconds[0])
    return Rate(speed, output / rest)


def speed_of(one: Side, two: Side, *, rows: int, context: float, size: int, bandwidth: float, vocabulary: int) -> Speed:
    """What this machine reaches, from both trials; ``size`` bytes per weight, ``context`` tokens read by a new one.

    A token takes t = L · o + e + max(ops / F, bytes / W): o and e are what is left of the measured times.
    """
    (first, fast), (second, slow) = one, two
    work, more = first.work, second.work
    scoring = rate_of((work.forward(), more.forward()), work.logits(), (fast.scoring, slow.scoring))
    update = rate_of((work.update(), more.update()), 2 * work.logits(), (fast.update, slow.update))
    blocks = second.shape.layers - first.shape.layers
    block = max(0.0, slow.token - fast.token) / blocks
    end = max(0.0, fast.token - first.shape.layers * block)
    shape = first.shape
    ops = 2 * (shape.weights.active + shape.adapter / shape.trained_layers) + 4 * shape.heads * context
    experts = shape.weights.experts if shape.block.merged else shape.weights.read(rows) - shape.weights.dense
    read = (shape.weights.dense + experts) * size + rows * 2 * shape.kv * size * context
    head = shape.hidden * shape.vocab
    known_block = max(rows * ops / scoring.blocks, read / bandwidth)
    known_end = max(rows * 2 * head / scoring.output, head * size / bandwidth)
    return Speed(
        *(scoring, update, bandwidth),
        block_overhead=max(0.0, block - known_block),
        token_overhead=max(0.0, end - known_end) * vocabulary / shape.vocab,
        link=LINK,
        latency=LATENCY,
    )
