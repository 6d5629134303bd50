"""Generation alone: our sampler beside Hugging Face's ``generate``, in turns, in one process; one JSON line.

python -m bench.generation --shape small --shortest 75 --longest 300 --response 128 --batch 32

Both sample from the same LoRA policy with random weights, and both are forced to end their responses at the same
lengths, which vary as in real use: otherwise the comparison would depend on which lengths happen to be sampled.
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
from torch import Tensor

from bench.shapes import EOS, LINEAR, LORA_R, PAD, TEMPERATURE, make_prompts, make_tokenizer, model_config, parser
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.rollout.kv_sampler import left_pad
from ppolm.rollout.sampling import Sampling

Side = Callable[[list[int]], list[int]]
"""Answers all prompts with responses of these lengths, and returns the actual lengths."""
ENDING_IDS = 0.02
"""Share of the vocabulary, at its end, whose ids end a response."""


def draw_lengths(given: argparse.Namespace, turn: int) -> list[int]:
    """Lengths of responses that end with a probability of ``given.ending`` at every token."""
    uniforms = torch.rand(given.batch, given.response, generator=torch.Generator().manual_seed(turn))
    ends = uniforms < given.ending
    return torch.where(ends.any(1), ends.int().argmax(1) + 1, given.response).tolist()


def ours(folder: str, prompts: list[list[int]], given: argparse.Namespace) -> Side:
    """The sampler that PPO uses. The uniform number of each draw is chosen so that the response ends there, or not."""
    models, sampling = our_models(folder, given), Sampling(given.response, temperature=TEMPERATURE)
    random = torch.Generator().manual_seed(0)

    def sample(lengths: list[int]) -> list[int]:
        uniforms = torch.rand(len(prompts), sampling.max_new_tokens, generator=random, dtype=torch.float64)
        uniforms = 0.01 + 0.89 * uniforms  # avoids the first and last ids, which end a response
        for row, length in enumerate(lengths):
            if length < given.response:
                uniforms[row, length - 1] = 1 - 1e-12
        return [len(one.token_ids) for one in models.policy.generate(prompts, sampling, uniforms)]

    return sample


def theirs(folder: str, prompts: list[list[int]], given: argparse.Namespace, lora: bool) -> Side:
    """``generate`` of a PEFT model or of the bare model. A logits processor makes rows end where planned."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, given.dtype))
    model.eval()
    if lora:
        config = peft.LoraConfig(r=LORA_R, lora_alpha=2 * LORA_R, target_modules=list(LINEAR), task_type="CAUSAL_LM")
        model = peft.get_peft_model(model, config).eval()
    input_ids, mask = left_pad(prompts, PAD, torch.device("cpu"))
    ends = torch.tensor(model.generation_config.eos_token_id)

    @torch.no_grad()
    def sample(lengths: list[int]) -> list[int]:
        planned = torch.tensor(lengths)

        def steer(tokens: Tensor, scores: Tensor) -> Tensor:
            length = tokens.shape[1] - input_ids.shape[1] + 1
            scores[:, EOS] = float("-inf")
            scores[:, ends[1] :] = float("-inf")
            if length < given.response:
                scores[planned == length, ends[1]] = 1e9
            return scores

        options = {"do_sample": True, "temperature": TEMPERATURE, "top_k": 0, "top_p": 1.0, "pad_token_id": PAD}
        tokens = model.generate(
            input_ids=input_ids,
            attention_mask=mask,
            max_new_tokens=given.response,
            logits_processor=transformers.LogitsProcessorList([steer]),
            **options,
        )[:, input_ids.shape[1] :]
        ended = torch.isin(tokens, ends)
        return torch.where(ended.any(1), ended.int().argmax(1) + 1, tokens.shape[1]).tolist()

    return sample


def make_model(folder: str, given: argparse.Namespace) -> None:
    """A model with random weights."""
    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(int(given.threads))
    torch.manual_seed(0)
    config = model_config(given.shape)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, given.dtype))
    count = int(ENDING_IDS * config.vocab_size)
    model.generation_config.eos_token_id = [EOS, *range(config.vocab_size - count, config.vocab_size)]
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)


def our_models(folder: str, given: argparse.Namespace) -> Models:
    """The models of ppolm, with the policy."""
    shape = {"lora_r": LORA_R, "lora_alpha": 2 * LORA_R, "device": "cpu", "dtype": given.dtype}
    return setup_models(PPOConfig(model_name=folder, **shape))


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--ending", type=float, default=0.02, help="probability that a token ends its response")
    given = flags.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder, given)
        prompts = make_prompts(given.shape, given.batch // given.samples, given.shortest, given.longest)
        prompts = [prompt for prompt in prompts for _ in range(given.samples)]
        sides = {
            "ours": ours(folder, prompts, given),
            "generate": theirs(folder, prompts, given, lora=True),
            "generate, no adapter": theirs(folder, prompts, given, lora=False),
        }
    found: dict[str, list[float]] = {name: [] for name in sides}
    tokens = 0
    for turn in range(given.steps + 1):  # the first is not counted
        planned = draw_lengths(given, turn)
        for name, sample in sides.items():
            start = time.perf_counter()
            lengths = sample(planned)
            seconds = time.perf_counter() - start
            if lengths != planned:
                raise AssertionError(f"{name} did not end its responses where it was to: {lengths}, not {planned}")
            print(f"{name}: {sum(lengths)} tokens in {seconds:.2f} s", file=sys.stderr, flush=True)
            if turn:
                found[name].append(seconds)
                tokens += sum(lengths)
    rates = {name: tokens / len(sides) / sum(turns) for name, turns in found.items()}
    ratio = {name: round(rates["ours"] / rate, 2) for name, rate in rates.items() if name != "ours"}
    answer = {
        "config": vars(given),
        "tokens_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "ratio": ratio,
        "mean_length": round(tokens / len(sides) / given.steps / given.batch, 1),
        "seconds": {name: [round(one, 2) for one in turns] for name, turns in found.items()},
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
