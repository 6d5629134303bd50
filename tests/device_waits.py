"""How often the host waits for the device in a PPO step, and what attention copies: a part of device_program.py.

During each wait the device may run out of work. ``reads`` are numbers that the host must know before it continues;
``writes`` are copies to the device, which wait too unless memory is pinned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from unittest.mock import patch

import torch

from ppolm.base_setup.device import SCORING_TIMES
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rollout.sampling import Sampling
from ppolm.token_attribution import SAPairs
from tests.emulated_device import counted, kernels

Waits = dict[str, int]


def count_waits(trainer: PPOTrainer, prompts: Sequence[str]) -> dict[str, Waits]:
    """Waits for ten more tokens, for scoring, and for one update of each model."""
    pairs = trainer.ppo_step(prompts[:2])["sa_pairs"]
    policy, value = trainer.model_trainer._policy_update, trainer.model_trainer._value_update
    found = {
        name: _difference(_of_rollout(trainer, prompts, 20, ended), _of_rollout(trainer, prompts, 10, ended))
        for name, ended in (("ten_tokens", 0), ("ten_tokens_after_an_end", 1))
    }
    for name, update in (("policy_update", policy), ("value_update", value), ("scoring", partial(_score, trainer))):
        with counted() as waits:
            update(pairs)
        found[name] = _sums(waits)
    batches = trainer.model_trainer._microbatches(trainer.models.policy, pairs)
    return found | {"microbatches": {"of_an_update": len(list(batches))}}


def _score(trainer: PPOTrainer, pairs: SAPairs) -> None:
    """Two microbatches, as in an update."""
    trainer.models.policy.logprobs(pairs.sequences, 1.0, trainer.config.microbatch_tokens // SCORING_TIMES)


def _of_rollout(trainer: PPOTrainer, prompts: Sequence[str], tokens: int, ended: int) -> Waits:
    """Waits in a rollout in which only the first ``ended`` responses end early, and copies of keys and values."""
    setup, sampling = trainer.models.setup, Sampling(tokens)
    encoded = [setup.tokenizer.encode(prompt) for prompt in prompts]
    uniforms = torch.full((len(prompts), tokens), 0.5)
    uniforms[:ended, 2] = 0.0  # draws the lowest id, which is an end here
    before = kernels["clone"]
    with counted() as waits, patch.object(setup.tokenizer, "eos_ids", [0]):
        sampled = trainer.models.policy.generate(encoded, sampling, uniforms)
    assert [len(one.token_ids) for one in sampled] == [3] * ended + [tokens] * (len(prompts) - ended)
    return _sums(waits) | {"copies": kernels["clone"] - before}


def _sums(waits: Counter[str]) -> Waits:
    return {"reads": waits.total() - waits["to_device"], "writes": waits["to_device"]}


def _difference(more: Waits, less: Waits) -> Waits:
    return {name: more[name] - less[name] for name in more}
