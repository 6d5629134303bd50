"""Kernels, casts and waits of the host on an emulated GPU: per generated token, per scored microbatch, per update.

python -m bench.gpu_counts                     a 28-layer model on an emulated cuda:0
python -m bench.gpu_counts --dtype float32 --operations

No GPU is needed and nothing is timed: operations are counted as they are dispatched, with the widths of a tiny model
but the depth and the vocabulary of Qwen3-0.6B. Attention and RMS norm count as the one kernel that CUDA has for them;
everything else as one kernel per operation that writes memory. A wait is a number that the host reads from the device,
or a copy of pageable memory to it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
import transformers

from bench.shapes import EOS, SHAPES, make_tokenizer, model_config
from bench.tables import markdown
from ppolm.batches import packing_cost
from ppolm.batches.sequences import Microbatch, Read, TokenSequences
from ppolm.config import PPOConfig
from ppolm.models.base_model import BaseModel
from ppolm.names import SamplerKind
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rollout.sampling import Sampling
from tests import emulated_device
from tests.emulated_kernels import as_on_cuda

Counts = dict[str, int]
READS = ("tolist", "to_host", *emulated_device.WAITS)
"""Waits in which the host reads a number, or has to know a size."""
PROMPTS = [f"Tell me all about {thing}, please:" for thing in ("cats", "the sea")]
FEW, MANY = 10, 20
"""Tokens of two rollouts, whose difference is the cost of a token."""
LARGE = 10**6
"""Tokens that no microbatch of these sequences has."""
OTHER_SAMPLERS: dict[str, SamplerKind] = {"the library's cache": "cache", "whole texts": "whole"}
"""For models that the slot sampler refuses."""


@contextmanager
def counting() -> Iterator[Counts]:
    """What the device did in the block; filled in when the block ends."""
    kernels, waits, found = emulated_device.kernels.copy(), emulated_device.waits.copy(), dict[str, int]()
    yield found
    ran, waited = emulated_device.kernels - kernels, emulated_device.waits - waits
    writes = waited["to_device"]
    found["kernels"] = ran.total() - writes - waited["to_host"]
    found["casts"] = ran["_to_copy"] - writes - waited["to_host"]
    found["reads"] = sum(waited[name] for name in READS)
    found["nonzero"], found["writes"] = waited["nonzero"], writes
    found |= {f"  {name}": number for name, number in ran.items()}


def make_trainer(folder: str, device: str, dtype: str) -> PPOTrainer:
    """A policy with adapters on all of its 28 blocks, that are not zero."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(model_config("deep"))
    model.generation_config.eos_token_id = EOS
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    settings: dict[str, Any] = {"model_name": folder, "device": device, "dtype": dtype, "lora_r": 4, "lora_alpha": 8}
    settings |= {"batch_size": 8, "minibatch_size": 8, "samples_per_prompt": 4, "max_new_tokens": FEW}
    return PPOTrainer(PPOConfig(**settings, recompute_logprobs="always"), reward=_lengths)


def _lengths(_: Sequence[str], responses: Sequence[str], **__: Any) -> list[float]:
    return [float(len(text)) for text in responses]


def count(trainer: PPOTrainer) -> dict[str, Counts]:
    """The counts of every phase."""
    pairs = trainer.ppo_step(PROMPTS)["sa_pairs"]
    assert trainer.models.setup.capabilities.has("decode_matrices"), "sampling would be counted without them"
    policy, value, train = trainer.models.policy, trainer.models.value, trainer.model_trainer
    rounds = [rollout(trainer, length, ended) for ended in (0, 1) for length in (FEW, MANY)]
    found = {
        "a generated token": _per_token(rounds[0], rounds[1]),
        "the same, after one of 8 rows has ended": _per_token(rounds[2], rounds[3]),
    }
    for name, kind in OTHER_SAMPLERS.items():
        with sampling_by(trainer, kind):
            found[f"a token of {name}"] = _per_token(rollout(trainer, FEW, 0), rollout(trainer, MANY, 0))
    phases: dict[str, tuple[BaseModel, Callable[[], object]]] = {
        "scoring": (policy, lambda: policy.logprobs(pairs.sequences, 1.0, LARGE)),
        "a policy update": (policy, lambda: train._policy_update(pairs)),
        "a value update": (value, lambda: train._value_update(pairs)),
    }
    for name, (model, act) in phases.items():
        one, two = (in_microbatches(model, pairs.sequences, number, act) for number in (1, 2))
        found[f"{name}, one microbatch"] = one
        found[f"{name}, each further microbatch"] = _difference(one, two)
    with patch.object(policy.adapters, "packs_prompts", False):  # as where prompts have one response each
        one, two = (in_microbatches(policy, pairs.sequences, number, phases["scoring"][1]) for number in (1, 2))
        found["scoring, each further microbatch of whole rows"] = _difference(one, two)
    return found


@contextmanager
def sampling_by(trainer: PPOTrainer, kind: SamplerKind) -> Iterator[None]:
    """Sample by ``kind``, as for a model that the faster samplers refuse."""
    setup = trainer.models.setup
    before, off = setup.capabilities, {"slot_sampler", "decode_matrices"}
    if kind == "whole":
        off.add("library_cache")
    setup.capabilities = dataclasses.replace(before, on=tuple(path for path in before.on if path not in off))
    assert setup.capabilities.sampler_for(MANY) == kind
    try:
        yield
    finally:
        setup.capabilities = before


def in_microbatches(model: BaseModel, sequences: TokenSequences, number: int, act: Callable[[], object]) -> Counts:
    """Counts of what ``act`` does with the sequences in this many microbatches."""
    longest = max(map(len, sequences.contexts))
    half = longest + 4 * FEW if model.adapters.packs_prompts else 4 * (longest + FEW)  # a prompt and its four answers
    plain, budget = model.microbatches, LARGE if number == 1 else half

    def split(given: TokenSequences, _: int, read: Read = "actions") -> Iterator[Microbatch]:
        return plain(given, budget, read)

    assert len(list(split(sequences, 0))) == number
    with patch.object(model, "microbatches", split), counting() as found:
        act()
    return found


def rollout(trainer: PPOTrainer, length: int, ended: int) -> Counts:
    """Counts of sampling 8 responses of ``length`` tokens, of which the first ``ended`` have only two."""
    setup = trainer.models.setup
    encoded = [setup.tokenizer.encode(prompt) for prompt in PROMPTS for _ in range(4)]
    uniforms = torch.full((len(encoded), length), 0.5, dtype=torch.float64)
    uniforms[:ended, 1] = 0.0  # draws the lowest id, which is made an end here
    with patch.object(setup.tokenizer, "eos_ids", [0]), counting() as found:
        sampled = trainer.models.policy.generate(encoded, Sampling(length), uniforms)
    assert [len(one.token_ids) for one in sampled] == [2] * ended + [length] * (len(encoded) - ended)
    return found


def _per_token(few: Counts, many: Counts) -> Counts:
    return {name: round(number / (MANY - FEW)) for name, number in _difference(few, many).items()}


def _difference(less: Counts, more: Counts) -> Counts:
    return {name: more[name] - less.get(name, 0) for name in more}


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--device", default="cuda:0", choices=["cuda:0", "mps:0"])
    flags.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    flags.add_argument("--layers", type=int, default=28)
    flags.add_argument("--json", action="store_true")
    flags.add_argument("--operations", action="store_true", help="which operations the kernels are")
    given = flags.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(patch.dict(SHAPES["deep"], num_hidden_layers=given.layers))
        stack.enter_context(patch.object(packing_cost, "PAYS", 1e9))  # packs prompts, to count their mask
        stack.enter_context(emulated_device.emulated(given.device))
        stack.enter_context(as_on_cuda())
        found = count(make_trainer(folder, given.device, given.dtype))
    if given.json:
        print(json.dumps(found))
        return
    columns = [name for name in next(iter(found.values())) if not name.startswith(" ")]
    print(markdown(["per", *columns], [[name, *(str(counts[c]) for c in columns)] for name, counts in found.items()]))
    for phase, counts in found.items() if given.operations else ():
        print(f"\n{phase}")
        for name, number in sorted(counts.items(), key=lambda one: -one[1]):
            if name.startswith(" ") and number:
                print(f"{number:7d}{name}")


if __name__ == "__main__":
    main()
