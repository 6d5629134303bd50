"""Undoing a PPO step that was abandoned: the trainer as it was before, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ppolm.runs.trainer_state import generators_of, load_scale_state, scale_state, updaters_of

if TYPE_CHECKING:
    from ppolm.ppo_trainer.ppo_trainer import PPOTrainer


class Snapshot:
    """What a step changes, copied before it: two adapters with their moments, generators, statistics, the buffer.

    That is three times the trained weights, in the computer's memory; the base is not among them.
    """

    def __init__(self, trainer: PPOTrainer) -> None:
        updaters = updaters_of(trainer)
        self._weights = [_copies(updater.parameters) for updater in updaters]
        self._moments = [(_copies(updater.tensors()), updater.state_dict()) for updater in updaters]
        self._random = {name: random.get_state() for name, random in generators_of(trainer).items()}
        self._scale = scale_state(trainer)
        rewarder, buffer = trainer.reward_computer, trainer.buffer
        self._counts = (trainer.step, trainer.attributor.sampler_agrees, rewarder.failures, buffer.evicted_tokens)
        self._tables = list(buffer.tables)

    @torch.no_grad()
    def restore(self, trainer: PPOTrainer) -> None:
        """Put the trainer back to where it was."""
        for updater, weights, (moments, state) in zip(updaters_of(trainer), self._weights, self._moments, strict=True):
            for name, value in updater.parameters.items():
                value.copy_(weights[name])
            updater.load(moments, state)
        for name, random in generators_of(trainer).items():
            random.set_state(self._random[name])
        load_scale_state(trainer, self._scale)
        rewarder, buffer = trainer.reward_computer, trainer.buffer
        trainer.step, trainer.attributor.sampler_agrees, rewarder.failures, buffer.evicted_tokens = self._counts
        buffer.tables = list(self._tables)


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}
