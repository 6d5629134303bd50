"""A plan for the machine that the command runs on: its own memory, speeds that a probe measures, and what is shared."""

from __future__ import annotations

import dataclasses
import os

import torch
from transformers import PreTrainedConfig

from ppolm.base_setup.device import PROGRAM, free_memory, resolve_device, resolve_dtype
from ppolm.config import PPOConfig
from ppolm.engines.build_engine import check_engine
from ppolm.errors import ConfigError, ModelError
from ppolm.estimate.memory import Devices, Lengths, program_size
from ppolm.estimate.model_shape import ModelShape
from ppolm.kernels.cpu_threads import use_threads
from ppolm.messages import reason
from ppolm.planning.plan import Case
from ppolm.planning.probe import probe
from ppolm.planning.step_time import Rate, Speed


def this_case(
    config: PPOConfig,
    planned: PreTrainedConfig,
    shape: ModelShape,
    lengths: Lengths,
    response: float,
    devices: Devices,
) -> Case:
    """This machine, with as many threads as each process will have."""
    check_engine(config)
    device = resolve_device(config.device)
    refuse_missing(device, devices.count)
    dtype = resolve_dtype(config.dtype, device, lambda: shape.parameters)
    free = free_memory(device)
    if free is not None and device.type != "cuda":
        free //= devices.count
    threads = config.threads or (1 if devices.count > 1 and not os.environ.get("OMP_NUM_THREADS") else None)
    if device.type == "cpu":  # torchrun gives each process of several one thread
        use_threads(threads, shape.hidden)
    program = program_size() if device.type == "cpu" else PROGRAM  # before the probe, which makes this process larger
    try:
        measured = probe(config.changed(threads=threads), planned, lengths, response, device, dtype, devices)
    except MemoryError:
        raise
    except Exception as error:  # the model's own code runs in it, which may fail in any way
        raise ModelError(
            f"This machine cannot be probed with {config.model_name}: {reason(error).rstrip('.')}. Name hardware "
            "instead, such as --hardware laptop, for figures that are computed alone."
        ) from error
    share, note = share_of(device, devices.count)
    notes: tuple[str, ...] = (note,) if note else ()
    if shape.packed is not None:
        notes += ("speed was measured with blocks of the same widths that are not packed.",)
    speed = slowed(measured, share)
    return Case(config, shape, lengths, response, dtype, device, free, devices, speed, program, notes=notes)


def refuse_missing(device: torch.device, count: int) -> None:
    """Raise if there are fewer GPUs than a plan for this machine uses."""
    if device.type == "cuda" and count > torch.cuda.device_count():
        raise ConfigError(
            f"The plan uses {count} devices, and this machine has {torch.cuda.device_count()}. Use fewer, or name the "
            "hardware that has as many."
        )


def share_of(device: torch.device, count: int) -> tuple[float, str]:
    """The share of its speed that each of several processes has on one device, and what is to be said about it."""
    if device.type == "cuda" or count == 1:
        return 1.0, ""
    if device.type == "mps":
        return 1 / count, f"{count} processes share this machine's only GPU: each has 1/{count} of it."
    cores, threads = cores_here(), torch.get_num_threads()
    if count * threads <= cores:
        return 1.0, ""
    return cores / (count * threads), (
        f"{count} processes of {threads} threads share the {cores} cores of this machine: together they are as fast "
        f"as {max(1, cores // threads)}."
    )


def cores_here() -> int:
    """Cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def slowed(speed: Speed, share: float) -> Speed:
    """A device of which only a share can be used."""
    return dataclasses.replace(
        speed,
        scoring=Rate(speed.scoring.blocks * share, speed.scoring.output * share),
        update=Rate(speed.update.blocks * share, speed.update.output * share),
        bandwidth=speed.bandwidth * share,
        block_overhead=speed.block_overhead / share,
        token_overhead=speed.token_overhead / share,
    )
