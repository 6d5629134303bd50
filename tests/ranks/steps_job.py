"""A job for tests: PPO steps of the embedded model, and everything that they computed, from the first process.

python -m tests.ranks.steps_job FILE '{"setting": ...}'
"""

from __future__ import annotations

import json
import sys
from functools import partial, partialmethod
from typing import Any

import pytest
import torch

from ppolm.batches.sequences import Microbatch
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.models.base_model import BaseModel
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ranks import join_ranks

STEPS = 2


def main(target: str, variants: dict[str, dict[str, Any]]) -> None:
    """Run them all, and save what each process has."""
    torch.set_num_threads(1)
    every = join_ranks().gather({name: run(settings) for name, settings in variants.items()})
    if join_ranks().first:
        torch.save(every, target)


def run(settings: dict[str, Any]) -> dict[str, Any]:
    """Steps with some settings: what they computed, and how many tokens this process has read for it."""
    trainer, gradients, read = PPOTrainer(PPOConfig(**settings)), list[torch.Tensor](), list[int]()
    ranks = trainer.models.setup.ranks
    prompts, steps = load_prompts("embedded"), []
    size = trainer.config.batch_size // trainer.config.samples_per_prompt
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.utils, "clip_grad_norm_", partial(watched, gradients, torch.nn.utils.clip_grad_norm_))
        patch.setattr(BaseModel, "states", partialmethod(counted, read, BaseModel.states))
        for number in range(STEPS):
            result = trainer.ppo_step(prompts[number * size : (number + 1) * size])
            numbers = {name: value for name, value in result["metrics"].items() if not name.startswith("seconds")}
            columns = {name: value.clone() for name, value in result["sa_pairs"].columns.items()}
            texts, rewards = [str(text) for text in result["generated_texts"]], list(result["rewards"])
            steps.append({"texts": texts, "rewards": rewards, "metrics": numbers, "columns": columns})
    trained = {**trainer.models.policy.parameters(), **trainer.models.value.parameters()}
    weights = {name: value.detach().clone() for name, value in trained.items()}
    return {"steps": steps, "gradients": gradients, "weights": weights, "processes": ranks.size, "read": sum(read)}


def counted(model: BaseModel, read: list[int], states: Any, batch: Microbatch) -> torch.Tensor:
    """The states of a pass, and how many tokens it reads, padding included."""
    read.append(batch.input_ids.numel())
    found: torch.Tensor = states(model, batch)
    return found


def watched(gradients: list[torch.Tensor], clip: Any, parameters: Any, *rest: Any) -> torch.Tensor:
    """Clip, and keep the gradients of the update as they were before."""
    values = list(parameters)
    found = [torch.zeros_like(value) if value.grad is None else value.grad for value in values]
    gradients.append(torch.cat([gradient.flatten() for gradient in found]).clone())
    return clip(values, *rest)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
