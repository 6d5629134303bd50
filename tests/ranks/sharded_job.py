"""A job for tests: what PPO computes with a sharded base, for several model folders, from the first process.

python -m tests.ranks.sharded_job FILE DTYPE FOLDER...
"""

from __future__ import annotations

import gc
import sys
import weakref
from functools import partial
from typing import Any

import pytest
import torch

from ppolm.base_setup import sharded_base
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig
from ppolm.engines.build_engine import build_engine
from ppolm.errors import ModelError
from ppolm.kernels.whole_weights import shard_of
from ppolm.ranks import join_ranks
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from ppolm.training.updater import Updater
from tests.ranks.steps_job import watched

BUDGET = 40
"""Tokens per pass: few, so that the processes have different numbers of passes."""


def main(target: str, dtype: str, folders: list[str]) -> None:
    """Compute everything, and save."""
    torch.set_num_threads(1)
    found = {folder: run(folder, dtype) for folder in folders}
    every = join_ranks().gather(found)
    if join_ranks().first:
        torch.save(every, target)


def run(folder: str, dtype: str) -> dict[str, Any] | str:
    """What one model gives; if it is refused, the sentence."""
    given: dict[str, Any] = {"model_name": folder, "device": "cpu", "dtype": dtype, "threads": 1}
    try:
        with pytest.MonkeyPatch.context() as patch:
            most = count_whole_blocks(patch)
            models = setup_models(PPOConfig(**given, lora_r=4, max_new_tokens=8, shard_base=True))
    except ModelError as error:
        return " ".join(str(error).split()).replace(folder, "MODEL")
    assert models.reward is not None
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for role in (models.policy, models.value, models.reward):
            for parameter in role.parameters().values():
                torch.nn.init.normal_(parameter, std=0.1)
    lengths = ((5, 12), (17, 3), (9, 7), (2, 1), (5, 9), (17, 6), (3, 8))
    random = torch.Generator().manual_seed(2)
    vocabulary = int(models.setup.text_config.vocab_size)
    tokens = [[torch.randint(vocabulary, (n,), generator=random) for n in pair] for pair in lengths]
    sequences = TokenSequences([pair[0] for pair in tokens], [pair[1] for pair in tokens])
    found: dict[str, Any] = {
        "whole at once": max(most, default=0),
        "parts": parts(models),
        "refused": refused(models, sequences),
    }
    found["logprobs"] = models.policy.logprobs(sequences, 0.7, BUDGET)
    found["values"] = models.value.values(sequences, BUDGET)
    found["rewards"] = models.reward.scores(sequences)
    found["sampled"] = sampled(models, [prompt.tolist() for prompt in sequences.contexts[:3]])
    found["gradient"] = gradient(models, sequences)
    found["parts afterwards"] = parts(models)
    return found


def count_whole_blocks(patch: pytest.MonkeyPatch) -> list[int]:
    """How many blocks a process holds whole whenever it shards one: the weights that it was given are still there."""
    given, found = list[list[Any]](), list[int]()
    shard = sharded_base.fully_shard

    def counted(module: Any, **options: Any) -> Any:
        given.append([weakref.ref(weight) for weight in module.parameters() if shard_of(weight) is weight])
        gc.collect()
        found.append(sum(any(weight() is not None for weight in block) for block in given))
        return shard(module, **options)

    patch.setattr(sharded_base, "fully_shard", counted)
    return found


def refused(models: Models, sequences: TokenSequences) -> list[str]:
    """The sentences about what a sharded base cannot do: a pass of one process, sampling where it does not fit."""
    if models.setup.shards is None:
        return []
    with pytest.raises(ModelError) as alone, models.setup.ranks.alone():
        models.policy.logprobs(sequences, 0.7, BUDGET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ppolm.base_setup.sharded_base.memory_size", lambda _: 1024)
        with pytest.raises(ModelError) as small:
            build_engine(PPOConfig(), models.policy)
    return [str(alone.value), str(small.value)]


def parts(models: Models) -> dict[str, float]:
    """How much of the blocks and of everything else this process holds, and whether tied embeddings are still tied."""
    lm = models.setup.causal_lm
    inside = [one for block in models.setup.block_list for name, one in block.named_parameters() if "lora_" not in name]
    ids = set(map(id, inside))
    outside = [one for name, one in lm.named_parameters() if id(one) not in ids and "lora_" not in name]
    tied = lm.get_input_embeddings().weight.data_ptr() == lm.get_output_embeddings().weight.data_ptr()
    held = {name: sum(shard_of(one).numel() for one in of) for name, of in (("blocks", inside), ("rest", outside))}
    return {**held, "all of the blocks": sum(one.numel() for one in inside), "tied": tied}


def sampled(models: Models, prompts: list[list[int]]) -> list[tuple[list[int], list[float]]]:
    """Responses, from the generator's own way of sharing prompts."""
    setup = models.setup
    generator = Generator(models.policy, setup, Sampling(8), ranks=setup.ranks)
    uniforms = torch.rand(len(prompts), 8, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return [(one.token_ids, one.logprobs) for one in generator._sample(prompts, uniforms)]


def gradient(models: Models, sequences: TokenSequences) -> torch.Tensor:
    """Of a sum of log-probabilities, over all processes."""
    updater = Updater("policy", models.policy.parameters(), 1e-3, 1e-8, 0.0, 1.0, 1, models.setup.ranks)
    gradients: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as patch, models.policy.active(trainable=True):
        patch.setattr(torch.nn.utils, "clip_grad_norm_", partial(watched, gradients, torch.nn.utils.clip_grad_norm_))
        batches = models.policy.microbatches(sequences, BUDGET)
        updater.update(batches, lambda batch: models.policy.token_logprobs(batch, 0.7)[0].sum())
    return gradients[0]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
