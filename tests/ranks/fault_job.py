"""A job for tests: ppolm with something wrong in its process 1, and with shorter limits.

python -m tests.ranks.fault_job FAULT ARGUMENT...
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from ppolm.cli import train_command
from ppolm.cli.main import main
from ppolm.errors import DataError
from ppolm.models.reward_model import RewardModel
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ranks import heartbeat, join
from ppolm.ranks.join import own_number

STILL, BEAT = 4.0, 0.5
"""Shorter than the real limits."""


def slow_and_then_asleep() -> None:
    """In step 1 process 1 computes for long, then the first acts for both for long; in step 2 process 1 sleeps."""
    heartbeat.STILL_SECONDS, heartbeat.BEAT_SECONDS = STILL, BEAT
    given = PPOTrainer.ppo_step

    def step(self: PPOTrainer, prompts: Any) -> Any:
        if self.step == 0:
            compute(3 * STILL if own_number() == 1 else 0)
            self.models.setup.ranks.do_once(lambda: time.sleep(2 * STILL))
        elif own_number() == 1:
            time.sleep(1000)
        return given(self, prompts)

    PPOTrainer.ppo_step = step  # type: ignore[method-assign]


def compute(seconds: float) -> None:
    """Keep a core busy."""
    until, numbers = time.monotonic() + seconds, torch.ones(64, 64)
    while time.monotonic() < until:
        numbers = (numbers @ numbers) / 64


def no_data() -> None:
    """The prompts cannot be read by process 1, as if they were not on its machine."""

    def load(*_: Any) -> None:
        raise DataError("There are no prompts on this machine.")

    if own_number() == 1:
        train_command.load_both = load  # type: ignore[assignment]


def no_memory() -> None:
    """The reward model of process 1 has no memory in the first step."""
    given, calls = RewardModel.scores, list[int]()

    def scores(self: RewardModel, sequences: Any) -> Any:
        calls.append(1)
        if len(calls) == 2 and own_number() == 1:
            raise MemoryError("the device is full")
        return given(self, sequences)

    RewardModel.scores = scores  # type: ignore[method-assign]


def nobody() -> None:
    """The other process was never started."""
    join.JOIN_SECONDS = 2.0


FAULTS = {one.__name__: one for one in (slow_and_then_asleep, no_data, no_memory, nobody)}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    main(sys.argv[2:])
