"""Generation alone: our sampler beside Hugging Face's ``generate``, in turns, in one process; one JSON line.

python -m bench.generation --shape small --shortest 75 --longest 300 --response 128 --batch 32

Both draw from the same LoRA policy with random weights. A share of the vocabulary ends a response, so that lengths
differ as they do in real use.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import peft
import torch
import transformers

from bench.shapes import EOS, LINEAR, LORA_R, PAD, TEMPERATURE, make_prompts, make_tokenizer, model_config, parser
from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig
from ppolm.rollout.kv_sampler import left_pad
from ppolm.rollout.sampling import Sampling

Side = Callable[[], list[int]]
"""Answers all prompts, and says how long the responses are."""


def ours(folder: str, prompts: list[list[int]], given: argparse.Namespace) -> Side:
    """The sampler that PPO uses."""
    shape = {"lora_r": LORA_R, "lora_alpha": 2 * LORA_R, "device": "cpu", "dtype": given.dtype}
    models = setup_models(PPOConfig(model_name=folder, **shape))
    sampling = Sampling(given.response, temperature=TEMPERATURE)
    random = torch.Generator().manual_seed(0)

    def sample() -> list[int]:
        uniforms = torch.rand(len(prompts), sampling.max_new_tokens, generator=random, dtype=torch.float64)
        return [len(one.token_ids) for one in models.policy.generate(prompts, sampling, uniforms)]

    return sample


def theirs(folder: str, prompts: list[list[int]], given: argparse.Namespace, lora: bool) -> Side:
    """``generate`` of a PEFT model, or of the bare model."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, given.dtype))
    model.eval()
    if lora:
        config = peft.LoraConfig(r=LORA_R, lora_alpha=2 * LORA_R, target_modules=list(LINEAR), task_type="CAUSAL_LM")
        model = peft.get_peft_model(model, config).eval()
    input_ids, mask = left_pad(prompts, PAD, torch.device("cpu"))
    ends = torch.tensor(model.generation_config.eos_token_id)

    @torch.no_grad()
    def sample() -> list[int]:
        options = {"do_sample": True, "temperature": TEMPERATURE, "top_k": 0, "top_p": 1.0, "pad_token_id": PAD}
        tokens = model.generate(
            input_ids=input_ids,
            attention_mask=mask,
            max_new_tokens=given.response,
            **options,
        )[:, input_ids.shape[1] :]
        ended = torch.isin(tokens, ends)
        return torch.where(ended.any(1), ended.int().argmax(1) + 1, tokens.shape[1]).tolist()

    return sample


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--ending", type=float, default=0.02, help="share of the vocabulary that ends a response")
    given = flags.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        config = model_config(given.shape)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, given.dtype))
        count = int(given.ending * config.vocab_size)
        model.generation_config.eos_token_id = [EOS, *range(config.vocab_size - count, config.vocab_size)]
        model.save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        del model
        prompts = make_prompts(given.shape, given.batch // given.samples, given.shortest, given.longest)
        prompts = [prompt for prompt in prompts for _ in range(given.samples)]
        sides = {
            "ours": ours(folder, prompts, given),
            "generate": theirs(folder, prompts, given, lora=True),
            "generate, no adapter": theirs(folder, prompts, given, lora=False),
        }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for turn in range(given.steps + 1):  # the first is not counted
        for name, sample in sides.items():
            start = time.perf_counter()
            lengths = sample()
            seconds = time.perf_counter() - start
            print(f"{name}: {sum(lengths)} tokens in {seconds:.2f} s", file=sys.stderr, flush=True)
            if turn:
                found[name].append({"seconds": seconds, "tokens": sum(lengths), "rate": sum(lengths) / seconds})
    rates = {name: round(max(one["rate"] for one in turns), 1) for name, turns in found.items()}
    ratio = {name: round(rates["ours"] / rate, 2) for name, rate in rates.items() if name != "ours"}
    mean = {name: round(turns[0]["tokens"] / given.batch, 1) for name, turns in found.items()}
    print(json.dumps({"config": vars(given), "tokens_per_second": rates, "ratio": ratio, "mean_length": mean}))


if __name__ == "__main__":
    main()
