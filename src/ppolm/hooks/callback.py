"""The protocol of a callback, and the facts that it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppolm.reward_kl.reward_adjuster import Score
from ppolm.state import Stateless
from ppolm.token_attribution import SAPairs

if TYPE_CHECKING:
    from ppolm.hooks.run_control import RunControl


@dataclass(frozen=True)
class StepDone:
    """A PPO step that has just been taken."""

    step: int
    """Its number, from 1."""
    metrics: Mapping[str, Any]
    """Its line of metrics.jsonl (docs/metrics.md)."""
    sa_pairs: SAPairs
    """The table of its tokens, with all columns. To be read, not changed: a buffer may still train on it."""
    texts: Sequence[str]
    """Its responses."""
    rewards: Sequence[Score]
    """Their rewards, before normalisation."""


@dataclass(frozen=True)
class EvaluationDone:
    """An evaluation on the held-out prompts."""

    step: int
    """Steps taken before it."""
    metrics: Mapping[str, Any]
    """Its line of metrics.jsonl."""
    samples: Sequence[Mapping[str, Any]]
    """Prompts, responses and rewards."""
    status: str
    """What it found: improving, converged, collapsed, over-optimised, ..."""
    reasons: Sequence[str]
    """Why it says so, in sentences."""


@dataclass(frozen=True)
class RunDone:
    """The end of a run, whatever ended it."""

    step: int
    """Steps taken."""
    stopped: str
    """finished, stopped (by a callback), converged, collapsed, over-optimised, interrupted (a signal) or failed."""
    why: str = ""
    """The error, or the reason that a callback gave."""
    verdict: str = ""
    """improved, unchanged, ...; empty if the run ended before there was one."""
    reasons: Sequence[str] = field(default=())
    """The reasons for the verdict."""


class Callback(Stateless):
    """What a run tells after a step, an evaluation and a checkpoint, at its start and at its end.

    Override what you need; a class of your own with some of these methods will do as well. ``run`` is the handle
    through which a callback stops the run or changes settings. Values that must survive a resume go into
    ``state_dict`` and ``load_state_dict``, as plain values that JSON can hold.
    """

    def on_start(self, run: RunControl) -> None:
        """Before the first step, also of a resumed run."""

    def on_step(self, step: StepDone, run: RunControl) -> None:
        """After a PPO step."""

    def on_evaluation(self, evaluation: EvaluationDone, run: RunControl) -> None:
        """After an evaluation."""

    def on_checkpoint(self, checkpoint: Path, run: RunControl) -> None:
        """After a checkpoint is complete on disk."""

    def on_end(self, end: RunDone, run: RunControl) -> None:
        """After everything is written, however the run ended: also after a signal or an error."""
