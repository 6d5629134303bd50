"""Packed, unpacked, and as the cost model decides: scoring and training, on one thread.

python -m bench.packing                 the whole grid, a few minutes
python -m bench.packing --quick         four points of it
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
import transformers

from bench.shapes import LORA_R, SHAPES, make_prompts, make_tokenizer, model_config
from bench.tables import markdown
from ppolm.base_setup.model_setup import setup_models
from ppolm.batches.arrange import apart, bundled
from ppolm.batches.packing import Answers
from ppolm.batches.packing_cost import Cost, bundles, most_together, topics
from ppolm.batches.sequences import Microbatch, Read
from ppolm.config import PPOConfig
from ppolm.models import PolicyModel

BUDGET = 4096
PROMPTS, ANSWERS, SAMPLES = (8, 40, 150, 600), (8, 64, 256, 512), (2, 8, 32)
MOST_TOKENS = 9000
"""Larger points are left out: they would take minutes each and show nothing that smaller ones do not."""
QUICK = ((40, 256, 8), (150, 8, 8), (8, 8, 2), (600, 64, 8))


def make_model(shape: str) -> PolicyModel:
    """A policy with random weights and an adapter."""
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(model_config(shape)).save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        return setup_models(PPOConfig(model_name=folder, device="cpu", dtype="float32", lora_r=LORA_R)).policy


def make_items(shape: str, prompt: int, answer: int, samples: int) -> list[Answers]:
    """Answers of the given length, plus or minus a quarter, to as many prompts as fill a forward pass."""
    count = max(1, min(8, 2048 // (samples * (prompt + answer))))
    prompts = make_prompts(shape, count, prompt, prompt)
    texts = iter(make_prompts(shape, count * samples + 1, max(2, answer * 3 // 4), answer * 5 // 4))
    pairs = [(torch.tensor(ids), torch.tensor(next(texts))) for ids in prompts for _ in range(samples)]
    return [Answers(ids, (text,)) for ids, text in pairs]


def ways(model: PolicyModel, items: list[Answers]) -> tuple[int, dict[int, Callable[[], Iterator[Microbatch]]]]:
    """How many answers the cost model packs together, and forward passes with none, that many and all packed."""
    read: Read = "actions"
    groups, place = topics(items), (BUDGET, model.setup.tokenizer.pad_id, model.setup.device, read)

    def packed(most: int) -> Callable[[], Iterator[Microbatch]]:
        made = [bundle for topic in groups for bundle in bundles(topic, most, BUDGET)]
        return lambda: bundled(items, made, *place)

    decided, largest = most_together(groups, BUDGET, read, Cost.of(model.setup.text_config)), len(groups[0].answers)
    found = {most: packed(most) for most in (decided, largest) if most}
    return decided, {0: lambda: apart(items, *place, segments=False), **found}


def seconds(model: PolicyModel, batches: Callable[[], Iterator[Microbatch]], train: bool) -> float:
    """CPU time of one pass over all batches, which other running programs do not distort."""
    with model.active(trainable=train), torch.set_grad_enabled(train):
        start = time.process_time()
        for batch in batches():
            logprobs, _ = model.token_logprobs(batch, 1.0)
            if train:
                logprobs.sum().backward()
        return time.process_time() - start


def compare(model: PolicyModel, items: list[Answers], rounds: int) -> tuple[int, list[list[float]]]:
    """The decision, and the best seconds of scoring and of training: unpacked, packed, decided, measured in turns."""
    decided, found = ways(model, items)
    best = {most: [float("inf")] * 2 for most in found}
    for _ in range(rounds):
        for most, batches in found.items():
            for train in (0, 1):
                best[most][train] = min(best[most][train], seconds(model, batches, bool(train)))
    return decided, [[best[most][train] for most in (0, max(found), decided)] for train in (0, 1)]


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--shape", default="small", choices=list(SHAPES))
    flags.add_argument("--rounds", type=int, default=2, help="how often the ways take turns")
    flags.add_argument("--quick", action="store_true", help="four points")
    given = flags.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    model = make_model(given.shape)
    rows, worst = [], 0.0
    for prompt, answer, samples in QUICK if given.quick else itertools.product(PROMPTS, ANSWERS, SAMPLES):
        if samples * (prompt + answer) > MOST_TOKENS:
            continue
        decided, best = compare(model, make_items(given.shape, prompt, answer, samples), given.rounds)
        cells = [f"{prompt}, {samples} x {answer}", str(decided)]
        for times in best:
            ratio = times[2] / min(times[:2])
            worst = max(worst, ratio)
            cells += [*(f"{1e3 * one:.0f}" for one in times), f"**{ratio:.2f}**"]
        print("  ".join(cells), file=sys.stderr, flush=True)
        rows.append(cells)
    kinds = [
        f"{kind} {name}" for kind in ("scoring", "training") for name in ("unpacked ms", "packed", "decided", "ratio")
    ]
    print(markdown(["prompt, answers", "together", *kinds], rows))
    print(f"The decision takes at most {worst:.2f} times as long as the better of packed and unpacked.")


if __name__ == "__main__":
    main()
