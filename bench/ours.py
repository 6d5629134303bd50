"""Our side of the speed comparison: PPO steps of ppolm at a named shape, timed by phase; prints one JSON line.

python -m bench.ours --shape small --shortest 75 --longest 300 --batch 32 --samples 4 --layers 2
"""

from __future__ import annotations

import argparse
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
from ppolm.base_setup.model_setup import Models, setup_models
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


def config_of(given: argparse.Namespace, folder: str) -> PPOConfig:
    """The settings that the flags ask for."""
    return PPOConfig(
        model_name=folder,
        dtype=given.dtype,
        device="cpu",
        threads=None if given.threads == "auto" else int(given.threads),
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


def estimated_bytes(given: argparse.Namespace, config: PPOConfig) -> float:
    """The peak memory that `ppolm train --estimate` would name."""
    with torch.device("meta"):
        shape = shape_of(transformers.AutoModelForCausalLM.from_config(model_config(given.shape)), config)
    lengths = Lengths(given.longest, (given.shortest + given.longest) / 2)
    return step_memory(shape, config, lengths, getattr(torch, given.dtype), adapters=3).peak


def load_models(given: argparse.Namespace, config: PPOConfig) -> Models:
    """The four roles on a random model of the named shape."""
    torch.manual_seed(0)
    dtype = getattr(torch, given.dtype)
    model = transformers.AutoModelForCausalLM.from_config(model_config(given.shape), dtype=dtype)
    model.save_pretrained(config.model_name)
    make_tokenizer().save_pretrained(config.model_name)
    return setup_models(config)


def timed_trainer(config: PPOConfig, models: Models) -> tuple[PPOTrainer, Clock]:
    """A trainer whose prompts are token ids, and a clock that times its phases."""
    sampling = Sampling.of(config)
    generator = IdGenerator(models.policy, models.setup, sampling, config.seed, config.samples_per_prompt)
    trainer, clock = PPOTrainer(config, models=models, generator=generator), Clock()
    clock.watch(generator, "generate", "generation")
    for method in ("train_value_model", "train_policy_model"):
        clock.watch(trainer.model_trainer, method, "optimisation")
    return trainer, clock


def time_steps(
    given: argparse.Namespace, trainer: PPOTrainer, clock: Clock
) -> tuple[list[dict[str, float]], list[dict[str, Any]]]:
    """Seconds by phase, and the metrics, of each step."""
    each = trainer.config.prompts_per_step
    prompts = [" ".join(map(str, ids)) for ids in make_prompts(given.shape, each * 4, given.shortest, given.longest)]
    steps, found = [], []
    for step in range(given.steps):
        if given.paced and not sys.stdin.readline():
            break
        clock.seconds = {}
        start, first = time.perf_counter(), step * each % len(prompts)
        found.append(trainer.ppo_step(prompts[first : first + each])["metrics"])
        total = time.perf_counter() - start
        parts = clock.seconds
        scoring = total - parts["generation"] - parts["optimisation"]
        steps.append(parts | {"scoring": scoring, "total": total})
        print(f"step {step + 1}: {total:.2f} s", file=sys.stderr, flush=True)
        if given.paced:
            print(total, flush=True)
    return steps, found


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--microbatch-tokens", type=int, default=4096)
    flags.add_argument("--without", nargs="*", default=[], choices=[*FAST_PATHS, *HABITS], help="see bench.fast_paths")
    flags.add_argument("--paced", action="store_true", help="a step for each line of input, its seconds on a line")
    given = flags.parse_args()
    for name in given.without:
        HABITS.get(name, lambda: None)()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(given, folder)
        estimated = estimated_bytes(given, config)
        models = load_models(given, config)
    trainer, clock = timed_trainer(config, models)
    steps, metrics = time_steps(given, trainer, clock)
    best = min(steps[1:] or steps, key=lambda one: one["total"])
    answer = {
        "config": vars(given),
        "best_step_s": {name: round(value, 3) for name, value in best.items()},
        "steps_s": [round(one["total"], 3) for one in steps],
        "peak_rss_gib": round(peak_gib(), 3),
        "estimated_gib": round(estimated / 2**30, 3),
        "kl": [round(one["kl"], 4) for one in metrics],
        "first_mismatch": max(one["first_mismatch"] for one in metrics),
        "sampler_mismatch": metrics[-1]["sampler_mismatch"],
        "recomputed": trainer.attributor.recomputes,
        "response_length": metrics[-1]["response_length"],
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
