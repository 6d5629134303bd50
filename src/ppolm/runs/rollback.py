"""Undoes an abandoned PPO step: restores the trainer to its previous state, bit for bit."""

from __future__ import annotations

from typing import Any

import torch

from ppolm.components import Trainer
from ppolm.state import Stateful, Undoable
from ppolm.storage.state_files import copied


class Snapshot:
    """A copy of everything a step changes: two adapters, and the state of every component and callback.

    It takes three times the trained weights in host memory; the base is not copied.
    """

    def __init__(self, trainer: Trainer, callbacks: Stateful | None = None) -> None:
        models = trainer.models
        self._parts = {**trainer.components(), **({"callbacks": callbacks} if callbacks else {})}
        self._weights = [copied(model.parameters()) for model in (models.policy, models.value)]
        self._states = {name: _remembered(part) for name, part in self._parts.items()}
        self._counts = (trainer.step, trainer.reward_failures)

    @torch.no_grad()
    def restore(self, trainer: Trainer) -> None:
        """Restore the trainer to the snapshot."""
        for model, weights in zip((trainer.models.policy, trainer.models.value), self._weights, strict=True):
            for name, value in model.parameters().items():
                value.copy_(weights[name])
        for name, part in self._parts.items():
            if isinstance(part, Undoable):
                part.go_back(self._states[name])
            else:
                part.load_state_dict(self._states[name])
        trainer.step, trainer.reward_failures = self._counts


def _remembered(part: Stateful) -> Any:
    return part.remember() if isinstance(part, Undoable) else copied(part.state_dict())
