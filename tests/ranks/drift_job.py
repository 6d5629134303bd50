"""A job for tests: PPO steps in which something becomes different in the last process, and what all of them say then.

python -m tests.ranks.drift_job FILE '{"setting": ...}'
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.errors import ProcessesError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ranks import join_ranks

SPOILT = 2
"""The step in which it happens."""


def main(target: str, settings: dict[str, Any]) -> None:
    """Run every case, and save what each process has said."""
    torch.set_num_threads(1)
    config = PPOConfig(**settings)
    models, said = setup_models(config), dict[str, str]()
    for name, spoil in CASES.items():
        said[name] = steps(config, models, spoil)
    said["settings"] = refused(dataclasses.replace(config, kl_coef=5.0 * join_ranks().rank))
    sharded = dataclasses.replace(config, shard_base=True)
    said["random, sharded"] = steps(sharded, setup_models(sharded), random)
    every = join_ranks().gather(said)
    if join_ranks().first:
        torch.save(every, target)


def refused(config: PPOConfig) -> str:
    """The error before anything is loaded."""
    try:
        setup_models(config)
    except ProcessesError as error:
        return str(error)
    return ""


def steps(config: PPOConfig, models: Models, spoil: Callable[[PPOTrainer], None]) -> str:
    """How many steps were finished, in the last of which the last process does ``spoil``; the error that ended them."""
    done, prompts, ranks = 0, load_prompts("embedded"), join_ranks()
    trainer, size = PPOTrainer(config, models=models), config.batch_size
    for parameter in (*models.policy.parameters().values(), *models.value.parameters().values()):
        ranks.send(parameter.data)  # equal again after the case before
    try:
        for number in range(SPOILT):
            if number == SPOILT - 1 and ranks.rank == ranks.size - 1:
                spoil(trainer)
            first = number * size + int(getattr(trainer, "shifted", 0))
            trainer.ppo_step(prompts[first : first + size])
            done += 1
    except ProcessesError as error:
        return f"{done} steps: {error}"
    return f"{done} steps"


def nothing(trainer: PPOTrainer) -> None:
    """All is well."""


def other_prompts(trainer: PPOTrainer) -> None:
    trainer.shifted = 1  # type: ignore[attr-defined]


def random(trainer: PPOTrainer) -> None:
    trainer.generator.random.manual_seed(999)


def rewards(trainer: PPOTrainer) -> None:
    given: Any = trainer.reward_computer.normalize_rewards

    def other(*arguments: Any) -> list[Any]:
        return [score + 5.0 * (i % 2) for i, score in enumerate(given(*arguments))]

    trainer.reward_computer.normalize_rewards = other  # type: ignore[assignment, method-assign]


def statistics(trainer: PPOTrainer) -> None:
    trainer.reward_computer.normalizer.load_state_dict({"count": 3.0, "mean": 1.0, "sum_squares": 2.0})


def rate(trainer: PPOTrainer) -> None:
    trainer.model_trainer.policy_updater.peak *= 2


def weight(trainer: PPOTrainer) -> None:
    with torch.no_grad():
        next(iter(trainer.models.policy.parameters().values())).view(-1)[0].add_(1e-6)


CASES = {
    "nothing": nothing,
    "prompts": other_prompts,
    "random": random,
    "rewards": rewards,
    "statistics": statistics,
    "rate": rate,
    "weight": weight,
}

if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
