"""Our side of the speed comparison: PPO steps of ppolm at a named shape, timed by phase; prints one JSON line.

python -m bench.ours --shape small --shortest 75 --longest 300 --batch 32 --samples 4 --layers 2
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
import transformers

from bench.machine import peak_gib
from bench.shapes import LORA_R, TEMPERATURE, make_prompts, make_tokenizer, model_config, parser
from ppolm.base_setup import base_setup
from ppolm.base_setup.capabilities import FAST_PATHS
from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig
from ppolm.data.prompts import Prompt
from ppolm.estimate.memory import Lengths, step_memory
from ppolm.estimate.model_shape import shape_of
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling

HABITS: dict[str, Callable[[], Any]] = {
    "streamed_logits": lambda: setattr(base_setup.BaseModelSetup, "output_matrix", None),
    "sampler_logprobs": lambda: None,  # turned off by a setting instead
}
"""Optimisations without a setting to turn them off, and how they are disabled here."""


class IdGenerator(Generator):
    """A Generator whose prompts are token ids written as text."""

    def encode(self, prompt: Prompt, number: int) -> list[int]:  # noqa: ARG002
        """The ids."""
        return [int(word) for word in str(prompt.content).split()]


class Clock:
    """Seconds spent in functions, by name, since ``start``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Time a method from now on."""
        call: Callable[..., Any] = getattr(owner, method)

        def timed(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            answer = call(*arguments, **named)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            return answer

        setattr(owner, method, timed)


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--microbatch-tokens", type=int, default=4096)
    flags.add_argument("--without", nargs="*", default=[], choices=[*FAST_PATHS, *HABITS], help="see bench.fast_paths")
    flags.add_argument("--paced", action="store_true", help="a step for each line of input, its seconds on a line")
    given = flags.parse_args()
    for name in given.without:
        HABITS.get(name, lambda: None)()
    transformers.utils.logging.disable_progress_bar()
    threads = None if given.threads == "auto" else int(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        config = PPOConfig(
            model_name=folder,
            dtype=given.dtype,
            device="cpu",
            threads=threads,
            lora_r=LORA_R,
            lora_alpha=2 * LORA_R,
            trainable_layers=given.layers,
            batch_size=given.batch,
            minibatch_size=given.minibatch or given.batch,
            samples_per_prompt=given.samples,
            ppo_epochs=given.epochs,
            microbatch_tokens=given.microbatch_tokens,
            max_new_tokens=given.response,
            temperature=TEMPERATURE,
            top_k=0,
            top_p=1.0,
            without=tuple(name for name in given.without if name in FAST_PATHS),
            recompute_logprobs="always" if "sampler_logprobs" in given.without else "auto",
        )
        dtype = getattr(torch, given.dtype)
        with torch.device("meta"):
            shape = shape_of(transformers.AutoModelForCausalLM.from_config(model_config(given.shape)), config)
        lengths = Lengths(given.longest, (given.shortest + given.longest) / 2)
        estimated = step_memory(shape, config, lengths, dtype, adapters=3).peak
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(model_config(given.shape), dtype=dtype).save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        models = setup_models(config)
    sampling = Sampling.of(config)
    generator = IdGenerator(models.policy, models.setup, sampling, config.seed, config.samples_per_prompt)
    trainer, clock = PPOTrainer(config, models=models, generator=generator), Clock()
    clock.watch(generator, "generate", "generation")
    for method in ("train_value_model", "train_policy_model"):
        clock.watch(trainer.model_trainer, method, "optimisation")
    each = config.prompts_per_step
    prompts = [" ".join(map(str, ids)) for ids in make_prompts(given.shape, each * 4, given.shortest, given.longest)]
    steps, kls, mismatches = [], [], []
    for step in range(given.steps):
        if given.paced and not sys.stdin.readline():
            break
        clock.seconds = {}
        start, first = time.perf_counter(), step * each % len(prompts)
        metrics = trainer.ppo_step(prompts[first : first + each])["metrics"]
        total = time.perf_counter() - start
        kls.append(metrics["kl"])
        mismatches.append(metrics["first_mismatch"])
        parts = clock.seconds
        scoring = total - parts["generation"] - parts["optimisation"]
        steps.append(parts | {"scoring": scoring, "total": total})
        print(f"step {step + 1}: {total:.2f} s", file=sys.stderr, flush=True)
        if given.paced:
            print(total, flush=True)
    best = min(steps[1:] or steps, key=lambda one: one["total"])
    answer = {
        "config": vars(given),
        "best_step_s": {name: round(value, 3) for name, value in best.items()},
        "steps_s": [round(one["total"], 3) for one in steps],
        "peak_rss_gib": round(peak_gib(), 3),
        "estimated_gib": round(estimated / 2**30, 3),
        "kl": [round(kl, 4) for kl in kls],
        "first_mismatch": max(mismatches),
        "sampler_mismatch": metrics["sampler_mismatch"],
        "recomputed": trainer.attributor.recomputes,
        "response_length": metrics["response_length"],
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
