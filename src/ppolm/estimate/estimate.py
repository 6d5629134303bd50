"""``ppolm train --estimate``: memory and operations of a run, before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer

from ppolm.base_setup.device import (
    DTYPES,
    Precision,
    free_memory,
    half_precision,
    memory_size,
    resolve_device,
    resolve_dtype,
)
from ppolm.base_setup.load_model import load_pretrained
from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.config import PPOConfig
from ppolm.embedded import model_path
from ppolm.errors import ModelError
from ppolm.estimate.advice import Change, advice_text, advise, options
from ppolm.estimate.machine import gemm_gflops
from ppolm.estimate.memory import Devices, Lengths, Memory, packed_by, step_memory
from ppolm.estimate.model_shape import ModelShape, read_shape
from ppolm.estimate.operations import Work
from ppolm.kernels.cpu_bfloat16 import make_bfloat16_safe
from ppolm.ranks.join import started_processes
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from ppolm.runs.prompt_schedule import plan_prompts
from ppolm.storage.starting_point import started

MEASURED = 500
"""Number of prompts that are tokenised to measure prompt lengths."""
GIB = 2**30


@dataclass(frozen=True)
class RunEstimate:
    """The estimated memory and operations of a run."""

    config: PPOConfig
    shape: ModelShape
    lengths: Lengths
    memory: Memory
    work: Work
    device: torch.device
    dtype: torch.dtype
    adapters: int
    steps: int
    available: int | None = None
    """Bytes of memory that are free on the device, for each process on it, if known."""
    advice: tuple[Change, ...] = ()
    """What to change if it does not fit."""
    processes: int = 1
    """How many share the work of a step; memory is that of each."""

    def text(self, gflops: float) -> str:
        """The figures as text."""
        config, shape, work = self.config, self.shape, self.work
        here = "" if self.available is None else f" of {self.available / GIB:.1f} free"
        where = str(self.device) if self.processes == 1 else f"{self.device}, in each of {self.processes} processes"
        seconds = self.total / self.processes / gflops / 1e9
        together = "" if self.processes == 1 else f" with {self.processes} processes as fast as this one alone"
        lines = [
            f"A PPO step: {config.batch_size} responses of up to {config.max_new_tokens} tokens to "
            f"{config.prompts_per_step} prompts of {self.lengths.mean:.0f} tokens (longest: {self.lengths.longest}); "
            f"{shape.trained_layers} of {shape.layers} layers trained.",
            "",
            f"Memory at its peak on {where}, GiB: {self.memory.peak / GIB:.2f}{here}",
            *self._sizes(),
            *packed_note(shape, self.dtype),
            *self._how_it_fits(),
            "",
            f"Operations of a step, TFLOP: {self.total / 1e12:,.3g}",
            f"  {'generation':20}{work.generation() / 1e12:8,.3g}",
            f"  {'scoring':20}{work.scoring() / 1e12:8,.3g}",
            f"  {'training':20}{work.training() / 1e12:8,.3g}   {config.ppo_epochs} epochs of policy and value",
            "",
            f"At {gflops:,.0f} GFLOPS, the fastest matrix product measured here, a step takes at least "
            f"{duration(seconds)}{together}, and {self.steps} steps {duration(self.steps * seconds)}. Small models and "
            "single tokens stay well below that speed.",
        ]
        return "\n".join(lines)

    def _sizes(self) -> list[str]:
        """What memory is used for, a line for each."""
        config, shape, memory = self.config, self.shape, self.memory
        again = "; blocks recomputed" if memory.recomputes else ""
        copies = ", and a copy in engine mlx" if config.engine == "mlx" else ""
        stored = stored_text(shape, config, self.dtype)
        parts = [
            ("program", memory.program, "Python, torch and libraries"),
            ("base", memory.base, f"{shape.parameters / 1e6:,.1f} M parameters in {stored}{copies}"),
            ("adapters", memory.adapters, f"{self.adapters} of {shape.adapter / 1e6:,.2f} M; gradients and moments"),
            *([("trunk", memory.trunk, "states below the trained layers; trunk_mib")] if memory.trunk > 0 else []),
            ("and the largest of", None, ""),
            ("  generation", memory.generation, "keys and values; rollout_tokens"),
            ("  scoring", memory.scoring, f"microbatch_tokens{'' if self.device.type == 'cpu' else ', four times'}"),
            ("  training", memory.training, f"microbatch_tokens, minibatch_size, trainable_layers{again}"),
        ]
        lines = (f"  {name:20}{'' if size is None else f'{size / GIB:8.2f}'}   {why}" for name, size, why in parts)
        return [line.rstrip() for line in lines]

    def _how_it_fits(self) -> list[str]:
        """What is done or to be done to make it fit."""
        if self.available is not None and self.memory.peak > self.available:
            return ["", *advice_text(list(self.advice), self.available)]
        if self.memory.recomputes and self.config.gradient_checkpointing == "auto":
            lines = ["", "It fits because blocks are recomputed in the backward pass (gradient_checkpointing auto)."]
            return lines + [f"With {one.flag} it would fit without, too." for one in self.advice]
        return []

    @property
    def total(self) -> float:
        """Operations of a step."""
        return self.work.generation() + self.work.scoring() + self.work.training()

    def measured_text(self) -> str:
        """The figures as text, with this machine's measured speed and memory."""
        if self.device.type == "cpu" and self.dtype == torch.bfloat16:
            make_bfloat16_safe()
        return self.text(gemm_gflops(self.dtype, self.device))


def estimate(config: PPOConfig, prompts: Sequence[Any], eval_prompts: Sequence[Any] | None = None) -> RunEstimate:
    """Estimate a training run on these prompts, assuming that every response has the maximum length.

    Under a launcher the memory is that of each process. What is advised makes it fit into the memory that is free; what
    the run does by itself (``gradient_checkpointing: auto``) follows from the memory that the device has.
    """
    processes = started_processes()
    config = started(config)
    shape = read_shape(config)
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device, lambda: shape.parameters)
    lengths, steps = read_prompts(config, shape, prompts, eval_prompts)
    _, adapters = roles(config)
    size, available = memory_size(device), free_memory(device)

    def devices_of(changed: PPOConfig) -> Devices:
        return Devices(processes, changed.shard_base and processes > 1)

    def measure(changed: PPOConfig) -> Memory:
        other = shape if same_shape(changed, config) else read_shape(changed)
        stored = resolve_dtype(changed.dtype, device, lambda: shape.parameters)
        return step_memory(other, changed, lengths, stored, adapters, device, size, devices_of(changed))

    memory = measure(config)
    work = step_work(shape, config, lengths.mean, config.max_new_tokens, dtype, memory.recomputes)
    choices = options(config, shape, lengths.longest + config.max_new_tokens, half_of(dtype, device), processes)
    advice = advise(config, memory, available, measure, choices)
    found = (config, shape, lengths, memory, work, device, dtype, adapters, steps)
    return RunEstimate(*found, available, tuple(advice), processes)


def roles(config: PPOConfig) -> tuple[int, int]:
    """How many reward models score the responses, and how many adapters there are in all."""
    scored_by_model = "model" in (*config.reward, config.judge) or config.human_needs_model
    rewards = max(1, len(config.reward_model)) if scored_by_model else 0
    return rewards, 2 + rewards + (config.reference_adapter is not None)


def step_work(
    shape: ModelShape, config: PPOConfig, prompt: float, response: float, dtype: torch.dtype, recomputes: bool
) -> Work:
    """The operations of a step with these settings, for prompts and responses of these mean lengths."""
    scored = config.recompute_logprobs == "always" or dtype != torch.float32 or config.engine != "local"
    sizes = (config.batch_size, config.samples_per_prompt, config.ppo_epochs)
    return Work(shape, prompt, response, *sizes, roles(config)[0], scored, recomputes)


def read_prompts(
    config: PPOConfig, shape: ModelShape, prompts: Sequence[Any], eval_prompts: Sequence[Any] | None
) -> tuple[Lengths, int]:
    """Lengths of the training prompts in tokens, and the number of steps of a run on them."""
    source = model_path(config.model_name)
    text_config = load_pretrained(AutoConfig, source, config.trust_remote_code, weights=False).get_text_config()
    loaded = load_pretrained(AutoTokenizer, source, config.trust_remote_code, weights=False)
    if not loaded("any text")["input_ids"]:  # transformers creates an empty one when the files are missing
        raise ModelError(
            f"Model {config.model_name} has no tokenizer files, which count the prompts. Copy tokenizer.json and its "
            "config beside the model, or give --prompt-tokens to `ppolm plan`."
        )
    tokenizer = TokenizerSetup(loaded, shape.vocab, [])
    setup: Any = SimpleNamespace(
        tokenizer=tokenizer, context_length=getattr(text_config, "max_position_embeddings", None)
    )
    engine: Any = None  # nothing is generated
    generator = Generator(engine, setup, Sampling.of(config))
    schedule = plan_prompts(config, generator, prompts, config.num_epochs, eval_prompts)
    sizes = [len(tokenizer.encode(prompt.content)) for prompt in schedule.train[:MEASURED]]
    return Lengths(max(sizes), sum(sizes) / len(sizes), tuple(sizes)), schedule.total_steps


def same_shape(one: PPOConfig, other: PPOConfig) -> bool:
    return one.trainable_layers == other.trainable_layers and one.base_bits == other.base_bits


def half_of(dtype: torch.dtype, device: torch.device) -> Precision | None:
    """16 bits to store the base in, if it is not yet and the device computes with them."""
    names = {stored: name for name, stored in DTYPES.items() if stored != torch.float32}
    return names.get(half_precision(device)) if dtype == torch.float32 else None


def stored_text(shape: ModelShape, config: PPOConfig, dtype: torch.dtype) -> str:
    """In which precision a base is stored."""
    name, packed = str(dtype)[6:], packed_by(shape, config)
    if packed is None:
        return name
    if packed.method == "base_bits":
        return f"{name}, blocks in 4 bits"
    size = "" if packed.size is None else f" in {8 * packed.size:.2g} bits"
    return f"{name}, blocks packed by {packed.method}{size}"


def packed_note(shape: ModelShape, dtype: torch.dtype) -> list[str]:
    """What is to be said about a base that is packed in a way whose size is not known."""
    if shape.packed is None or shape.packed.size is not None:
        return []
    return [
        f"the base is packed by {shape.packed.method}, whose bits per weight are not known here: it is counted in "
        f"{str(dtype)[6:]}."
    ]


def duration(seconds: float) -> str:
    """A readable duration: 0.3 s, 42 s, 12 min, 3.4 h."""
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
