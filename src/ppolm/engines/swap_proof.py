"""Whether a server really samples from the adapter it was given: an adapter that was not applied looks like a run.

A fixed text is scored by the server and by us. The absolute difference tells another model; it cannot tell an adapter
from the one before it, because a PPO step moves log-probabilities by less than bfloat16 rounds them. So the *changes*
are compared: how far the server's numbers moved since the last version that was proven, along the way ours moved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SEQUENCES, LENGTH = 4, 64
OTHER_MODEL = 0.25
"""Root mean square difference of log-probabilities, in nats, above which a server serves another model. Rounding to
bfloat16 or to eight bits stays below it."""
OTHER_PRECISION = 0.05
"""Above this it is worth a warning. bfloat16 beside float32 was 0.03 on the embedded model."""
JUMP = 4.0
"""How many times as far as before a server's numbers may be from ours: its rounding does not change so much."""
SLIGHT = 1e-4
"""A difference that is never called a jump."""
ROUNDING = 1e-6
"""Differences that float32 cannot tell from zero."""
FOLLOWS = 0.25
"""How far the server's change may be from ours, relative to ours."""
SURE = 4.0
"""Standard errors by which it must be further, to be called wrong."""


def probe_ids(vocabulary: int, context: int) -> list[list[int]]:
    """The fixed token sequences that are scored. Special tokens usually come last, so ids are from the first half."""
    random = torch.Generator().manual_seed(1)
    length = max(2, min(LENGTH, context - 1))
    drawn = torch.randint(max(1, vocabulary // 2), (SEQUENCES, length), generator=random)
    return [[int(token) for token in row] for row in drawn.tolist()]


@dataclass(frozen=True)
class Scored:
    """The probe's log-probabilities [n] by us and by a server, under the same adapter."""

    ours: Tensor
    theirs: Tensor

    @property
    def mismatch(self) -> float:
        """Root mean square of their difference."""
        return _rms(self.theirs - self.ours)


@dataclass(frozen=True)
class SwapProof:
    """What a probe says about a swap.

    ``follows`` is α = ⟨Δs, Δp⟩ / ⟨Δp, Δp⟩ with Δs the change of the server's numbers since the last proven version and
    Δp that of ours: 1 if the new adapter is applied, 0 if the old one still is, and r/α-like if it is scaled wrongly.
    ``error`` is its standard error; infinite if nothing changed.
    """

    mismatch: float
    mismatch_before: float
    follows: float
    error: float

    @property
    def decided(self) -> bool:
        """Whether the change was large enough to tell the new adapter from the old one."""
        return SURE * self.error < 0.5

    @property
    def problem(self) -> str | None:
        """What is wrong, or None."""
        arrived = f"{100 * self.follows:.0f} % of the change arrived"
        if abs(self.follows - 1) > FOLLOWS + SURE * self.error:
            old = abs(self.follows) < 0.5
            return f"it {'still answers with an earlier adapter' if old else 'applies it differently'} ({arrived})"
        if self.mismatch > max(SLIGHT, min(OTHER_MODEL, JUMP * self.mismatch_before)):
            return f"it answers with another adapter: its log-probabilities are {self.mismatch:.2g} away from ours"
        return None


def prove_swap(now: Scored, before: Scored) -> SwapProof:
    """Compare two versions' numbers; ``before`` is the last proven version, or the base."""
    ours, theirs = now.ours - before.ours, now.theirs - before.theirs
    size = float(ours.square().sum())
    if size == 0:
        return SwapProof(now.mismatch, before.mismatch, 1.0, math.inf)
    follows = float((theirs * ours).sum()) / size
    # A server that repeats its old numbers has no scatter of its own, so what it was off by before counts, too.
    noise = max(_rms(theirs - follows * ours), before.mismatch, ROUNDING)
    return SwapProof(now.mismatch, before.mismatch, follows, noise / math.sqrt(size))


def _rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())
