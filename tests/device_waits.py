"""How often the host waits for the device in a PPO step: a part of device_program.py.

During each wait the device may run out of work. ``reads`` are numbers that the host must know before it continues;
``writes`` are copies to the device, which wait too unless memory is pinned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from ppolm.ppo_trainer import PPOTrainer
from ppolm.rollout.sampling import Sampling
from tests.emulated_device import counted

Waits = dict[str, int]


def count_waits(trainer: PPOTrainer, prompts: Sequence[str]) -> dict[str, Waits]:
    """Waits for ten more tokens, and for one update of each model."""
    pairs = trainer.ppo_step(prompts[:2])["sa_pairs"]
    policy, value = trainer.model_trainer._policy_update, trainer.model_trainer._value_update
    found = {"ten_tokens": _difference(_of_rollout(trainer, prompts, 20), _of_rollout(trainer, prompts, 10))}
    for name, update in (("policy_update", policy), ("value_update", value)):
        with counted() as waits:
            update(pairs)
        found[name] = _sums(waits)
    batches = trainer.model_trainer._microbatches(trainer.models.policy, pairs)
    return found | {"microbatches": {"of_an_update": len(list(batches))}}


def _of_rollout(trainer: PPOTrainer, prompts: Sequence[str], tokens: int) -> Waits:
    """Waits in a rollout in which no response ends early."""
    setup, sampling = trainer.models.setup, Sampling(tokens)
    encoded = [setup.tokenizer.encode(prompt) for prompt in prompts]
    ends, setup.tokenizer.eos_ids = setup.tokenizer.eos_ids, [-1]
    with counted() as waits:
        sampled = trainer.models.policy.generate(encoded, sampling, torch.full((len(prompts), tokens), 0.5))
    setup.tokenizer.eos_ids = ends
    assert all(len(one.token_ids) == tokens for one in sampled)
    return _sums(waits)


def _sums(waits: Counter[str]) -> Waits:
    return {"reads": waits.total() - waits["to_device"], "writes": waits["to_device"]}


def _difference(more: Waits, less: Waits) -> Waits:
    return {name: more[name] - less[name] for name in more}
