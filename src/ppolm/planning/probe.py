"""The probe: how fast this machine scores, updates and samples, measured on two small models of the planned widths.

One has a few blocks more than the other, so the difference of their times is that of blocks alone, and the rest is that
of the output matrix and of what happens once per pass. Both run the same code as a training does.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.utils import logging as library_logging

from ppolm.base_setup.device import DTYPES
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig
from ppolm.errors import ModelError
from ppolm.estimate.memory import Devices, Lengths
from ppolm.estimate.model_shape import ModelShape
from ppolm.estimate.operations import Work
from ppolm.kernels.decode_layers import PAYS_AFTER
from ppolm.planning.calibrate import Measured, Trial, speed_of
from ppolm.planning.model import shape_from
from ppolm.planning.step_time import Speed
from ppolm.planning.trial_model import depths, make_folder, trial_config
from ppolm.rollout.sampling import Sampling
from ppolm.training.updater import Updater

TOKENS = 4096
"""Most tokens of a trial's pass."""
ROWS = 64
"""Most rows of a trial's sampling."""
SECONDS = 8.0
"""For how long the trials are repeated, at least and at most so many times:"""
LEAST, MOST = 5, 25
STREAM = 2**27
"""Bytes of a matrix that no cache holds, for the speed of memory."""


@dataclass(frozen=True)
class Sizes:
    """What one trial computes, as close to the planned run as seconds allow."""

    prompt: int
    response: int
    answers: int
    """Responses of an update, and of a scoring pass."""
    rows: int
    """Responses sampled at once."""
    short: int
    """Tokens of the shorter of two samplings; the difference to the longer one is that of tokens alone."""
    long: int

    @classmethod
    def of(cls, config: PPOConfig, lengths: Lengths, response: float, devices: int, context: int | None) -> Sizes:
        """Of the run's own minibatches and batches, on one of several devices."""
        tokens = min(config.max_new_tokens, max(1, round(response)))
        short, more = (PAYS_AFTER, 24) if config.max_new_tokens >= PAYS_AFTER else (1, 6)
        room = TOKENS // 2 if context is None else context - max(tokens, short + more)
        prompt = max(1, min(round(lengths.mean), room))
        most = max(1, min(TOKENS, config.microbatch_tokens) // (prompt + tokens))
        each = -(-min(config.minibatch_size, config.batch_size) // devices)
        rows = min(ROWS, -(-config.batch_size // devices), max(1, config.rollout_tokens // (prompt + tokens)))
        return cls(prompt, tokens, min(most, each), rows, short, short + more)


def probe(
    config: PPOConfig,
    planned: PreTrainedConfig,
    lengths: Lengths,
    response: float,
    device: torch.device,
    dtype: torch.dtype,
    devices: Devices,
) -> Speed:
    """Measure this machine; takes some seconds."""
    context = getattr(planned.get_text_config(), "max_position_embeddings", None)
    sizes = Sizes.of(config, lengths, response, devices.count, context)
    settings = _trial_settings(config, device, dtype)
    whole = shape_from(planned, settings)
    with tempfile.TemporaryDirectory() as folder, _without_bars():
        trials = _trials(planned, whole, settings, sizes, Path(folder))
        times = _repeat([phases for _, phases in trials], device)
    tokens = sizes.long - sizes.short
    measured = [Measured(one["scoring"], one["update"], (one["long"] - one["short"]) / tokens) for one in times]
    context_read = sizes.prompt + (sizes.short + sizes.long) / 2
    first, second = (trial for trial, _ in trials)
    return speed_of(
        *((first, measured[0]), (second, measured[1])),
        rows=sizes.rows,
        context=context_read,
        size=dtype.itemsize,
        bandwidth=read_speed(device),
        vocabulary=whole.vocab,
    )


Made = tuple[Trial, dict[str, Callable[[], object]]]
"""A trial model, and what is timed of it."""


def _trials(
    planned: PreTrainedConfig, whole: ModelShape, settings: PPOConfig, sizes: Sizes, folder: Path
) -> list[Made]:
    """The two trial models. The smaller has one block, or two where a model cannot have one (RWKV divides by L − 1)."""
    dtype = DTYPES[settings.dtype] if settings.dtype != "auto" else torch.float32
    for least in (1, 2):
        try:
            return [
                _trial(planned, number, settings, sizes, make_folder(trial_config(planned, number), path, dtype))
                for number in depths(whole.block_weights, least)
                for path in (folder / f"{least}-{number}",)
            ]
        except ModelError:
            if least == 2 or whole.layers == 1:
                raise
    raise AssertionError("the second attempt returns or raises")


def _trial(planned: PreTrainedConfig, number: int, settings: PPOConfig, sizes: Sizes, path: Path) -> Made:
    try:
        models = setup_models(settings.changed(model_name=str(path)))
    except ModelError as error:  # which names the trial's folder
        raise ModelError(str(error).replace(str(path), settings.model_name)) from error
    found = shape_from(trial_config(planned, number), settings)
    if found.layers != number:
        raise ModelError(f"its configuration makes {found.layers} blocks where {number} are asked for")
    work = Work(found, sizes.prompt, sizes.response, sizes.answers, recomputed=False)
    return Trial(found, work), _phases(models, sizes, settings)


@contextmanager
def _without_bars() -> Iterator[None]:
    """The trial models are written and loaded silently."""
    shown = library_logging.is_progress_bar_enabled()
    library_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            library_logging.enable_progress_bar()


def _trial_settings(config: PPOConfig, device: torch.device, dtype: torch.dtype) -> PPOConfig:
    """The planned settings as far as they decide how fast a pass is: no adapters, rewards or servers of the run's."""
    off: dict[str, Any] = {
        "sft_adapter": None,
        "start_from": None,
        "reward_model": (),
        "reward": ("length",),
        "judge": None,
    }
    off |= {"engine": "local", "engine_url": (), "trainable_layers": None, "value_init": "zero"}
    stored = str(dtype).removeprefix("torch.")
    return config.changed(**off, device=str(device), dtype=stored, gradient_checkpointing="off")


def _phases(models: Models, sizes: Sizes, config: PPOConfig) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    random, vocabulary = torch.Generator().manual_seed(1), models.setup.text_config.vocab_size

    def ids(length: int) -> torch.Tensor:
        return torch.randint(2, vocabulary, (length,), generator=random)

    prompts = [ids(sizes.prompt) for _ in range(max(sizes.rows, sizes.answers))]
    sequences = TokenSequences(prompts[: sizes.answers], [ids(sizes.response) for _ in range(sizes.answers)])
    given = [prompt.tolist() for prompt in prompts[: sizes.rows]]
    policy, budget, limits = models.policy, config.microbatch_tokens, Sampling.of(config)
    updater = Updater("probe", policy.parameters(), 0.0, config.adam_eps, 0.0, config.max_grad_norm, 5)

    def score() -> None:
        policy.score(sequences, budget, lambda batch: policy.token_logprobs(batch, config.temperature)[0])

    def update() -> None:
        with policy.active(trainable=True):
            batches = policy.microbatches(sequences, budget)
            updater.update(batches, lambda batch: policy.token_logprobs(batch, config.temperature, "measure")[0].sum())

    def sample(tokens: int) -> None:
        sampling = Sampling(tokens, limits.temperature, limits.top_k, limits.top_p, batch_tokens=10**9)
        policy.generate(given, sampling, torch.rand(len(given), tokens, generator=random, dtype=torch.float64))

    times = {"short": lambda: sample(sizes.short), "long": lambda: sample(sizes.long)}
    return {"scoring": score, "update": update, **times}


def _repeat(sides: list[dict[str, Callable[[], object]]], device: torch.device) -> list[dict[str, float]]:
    """Seconds of every phase of both sides, in turns, so that a change of the machine's speed meets both.

    Of the first the median, of the second that plus the median of what it took longer in the same round.
    """
    wait = getattr(torch, device.type).synchronize if device.type != "cpu" else (lambda: None)
    found: list[dict[str, list[float]]] = [{name: [] for name in phases} for phases in sides]
    began = None
    while began is None or len(found[1]["update"]) < LEAST or time.perf_counter() - began < SECONDS:
        for phases, seconds in zip(sides, found, strict=True):
            for name, act in phases.items():
                wait()
                start = time.perf_counter()
                act()
                wait()
                if began is not None:  # the first round warms up
                    seconds[name].append(time.perf_counter() - start)
        began = time.perf_counter() if began is None else began
        if len(found[1]["update"]) >= MOST:
            break
    first = {name: statistics.median(values) for name, values in found[0].items()}
    longer = {
        name: statistics.median(more - less for less, more in zip(values, found[1][name], strict=True))
        for name, values in found[0].items()
    }
    return [first, {name: seconds + longer[name] for name, seconds in first.items()}]


def read_speed(device: torch.device) -> float:
    """Bytes per second at which a product of one row reads a matrix that no cache holds."""
    matrix = torch.ones(STREAM // 4 // 4096, 4096, device=device)
    row = torch.ones(4096, device=device)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        torch.mv(matrix, row).sum().item()
        best = min(best, time.perf_counter() - start)
    return STREAM / best
