"""Where a sampling step spends its time: milliseconds by part, beside the time to read its weights once.

python -m bench.decode_profile --shape qwen3-0.6b --dtype bfloat16 --shortest 64 --longest 200 --response 24 --batch 8

No response ends, so that every step has the same number of rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from bench.generation import make_model, our_models
from bench.shapes import TEMPERATURE, make_prompts, parser
from ppolm.rollout import slot_sampler
from ppolm.rollout.sampling import Sampling
from ppolm.rollout.slot_sampler import SlotSampler

PARTS = {
    "matrix products": ("mkldnn::_linear_pointwise", "aten::addmm", "aten::mm"),
    "attention": ("aten::scaled_dot_product_attention",),
    "choice of the tokens": ("choice",),
}
"""Names of the profiled operations of each part."""


class Watched(SlotSampler):
    """A sampler that profiles its steps from the second on: the first one prepares the layers."""

    steps = 0

    def _next_tokens(self) -> None:
        self.steps += 1
        if self.steps == 1:
            super()._next_tokens()
            self.watch = profile(activities=[ProfilerActivity.CPU])
            self.watch.start()
            return
        with record_function("step"):
            super()._next_tokens()


def read_gigabytes_per_second() -> float:
    """Memory read bandwidth of this machine."""
    numbers, best = torch.ones(2**27, dtype=torch.int64), 0.0
    for _ in range(5):
        start = time.perf_counter()
        numbers.sum()
        best = max(best, 8 * len(numbers) / (time.perf_counter() - start) / 1e9)
    return best


@dataclass(frozen=True)
class StepProfile:
    """Milliseconds of an average sampling step, by part, and the size of the weights that it reads."""

    steps: int
    total: float
    parts: dict[str, float]
    gigabytes: float


def measure(given: argparse.Namespace) -> StepProfile:
    """Sample one batch and profile every step but the first."""
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder, given)
        models = our_models(folder, given)
    prompts = make_prompts(given.shape, given.batch, given.shortest, given.longest)
    uniforms = 0.01 + 0.89 * torch.rand(given.batch, given.response, dtype=torch.float64)
    plain = slot_sampler.choose_unchecked

    def choose(*args: object) -> object:
        with record_function("choice"):
            return plain(*args)  # type: ignore[arg-type]

    sampler = Watched(models.setup, prompts, Sampling(given.response, temperature=TEMPERATURE), uniforms)
    with models.policy.active(), patch.object(slot_sampler, "choose_unchecked", choose):
        sampler.sample()
    sampler.watch.stop()
    found = {event.key: event for event in sampler.watch.key_averages()}
    count = found["step"].count
    total = found["step"].cpu_time_total / count / 1e3
    parts = {
        part: sum(found[name].cpu_time_total for name in names if name in found) / count / 1e3
        for part, names in PARTS.items()
    }
    parts["everything else"] = total - sum(parts.values())
    weights = [one for name, one in models.setup.causal_lm.named_parameters() if "lora_" not in name]
    return StepProfile(count, total, parts, sum(one.nbytes for one in weights) / 1e9)


def main() -> None:
    given = parser(__doc__).parse_args()
    step = measure(given)
    print(f"a step of {given.batch} rows: {step.total:.2f} ms, of {step.steps}")
    for part, milliseconds in step.parts.items():
        print(f"  {milliseconds:7.2f} ms  {milliseconds / step.total:4.0%}  {part}")
    speed = read_gigabytes_per_second()
    milliseconds = 1e3 * step.gigabytes / speed
    print(f"reading the {step.gigabytes:.2f} GB of weights once, at {speed:.1f} GB/s: {milliseconds:.0f} ms")


if __name__ == "__main__":
    main()
