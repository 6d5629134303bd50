"""From settings and wishes to a plan: reads the model's configuration, finds the hardware, and probes this machine."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig

from ppolm.base_setup.device import DTYPES, LARGE, PROGRAM, Precision, free_memory, resolve_device, resolve_dtype
from ppolm.config import PPOConfig
from ppolm.errors import ConfigError
from ppolm.estimate.advice import Change, advise, options
from ppolm.estimate.estimate import read_prompts, same_shape
from ppolm.estimate.memory import Devices, Lengths, Memory, program_size
from ppolm.estimate.model_shape import ModelShape
from ppolm.kernels.cpu_threads import use_threads
from ppolm.planning.hardware import THIS, Hardware, find_hardware, published_speed, serving_speed
from ppolm.planning.launch import FOLDER, server_urls
from ppolm.planning.model import model_config, shape_config, shape_from
from ppolm.planning.plan import Case, Plan, make_plan
from ppolm.planning.probe import probe
from ppolm.planning.serving import Pool


@dataclass(frozen=True)
class Wishes:
    """What a plan is asked for besides the settings of the run."""

    hardware: str = THIS
    devices: int = 1
    servers: int = 0
    server_hardware: str | None = None
    shape: str | None = None
    prompt_tokens: int | None = None
    longest_prompt: int | None = None
    response_tokens: int | None = None

    def __post_init__(self) -> None:
        limits = {"devices": 1, "servers": 0, "prompt_tokens": 1, "longest_prompt": 1, "response_tokens": 1}
        for name, least in limits.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}. It must be at least {least}.")
        if (self.longest_prompt or 0) < (self.prompt_tokens or 0) and self.longest_prompt is not None:
            raise ConfigError(
                f"longest_prompt is {self.longest_prompt}, less than prompt_tokens, {self.prompt_tokens}: the longest "
                "prompt cannot be shorter than the mean. Raise it, or leave it out."
            )


def build_plan(config: PPOConfig, wishes: Wishes, prompts: Sequence[Any] | None = None) -> tuple[PPOConfig, Plan]:
    """The settings with which the plan is to be started, and its figures; ``prompts`` unless lengths are given."""
    config = _with_servers(config, wishes)
    planned = shape_config(wishes.shape) if wishes.shape else model_config(config)
    shape = shape_from(planned, config)
    lengths = _lengths(config, shape, wishes, prompts)
    response = float(min(wishes.response_tokens or config.max_new_tokens, config.max_new_tokens))
    devices = Devices(wishes.devices, config.shard_base)
    _refuse(config, planned, lengths, devices)
    if wishes.hardware == THIS:
        case = _here(config, planned, shape, lengths, response, devices)
    else:
        case = _elsewhere(config, shape, lengths, response, devices, find_hardware(wishes.hardware))
    return config, make_plan(_with_pool(case, wishes))


def _with_servers(config: PPOConfig, wishes: Wishes) -> PPOConfig:
    """Servers that are only counted get addresses; those that settings name are counted."""
    if not wishes.servers:
        return config
    if config.engine == "mlx" or (config.engine_url and len(config.engine_url) != wishes.servers):
        given = config.engine if config.engine == "mlx" else f"{len(config.engine_url)} addresses"
        raise ConfigError(f"servers is {wishes.servers}, and the settings say {given}. Leave one of them out.")
    urls = config.engine_url or server_urls(wishes.servers)
    return config.changed(engine="vllm", engine_url=urls, engine_folder=config.engine_folder or FOLDER)


def _lengths(config: PPOConfig, shape: ModelShape, wishes: Wishes, prompts: Sequence[Any] | None) -> Lengths:
    if wishes.prompt_tokens is not None:
        return Lengths(wishes.longest_prompt or wishes.prompt_tokens, float(wishes.prompt_tokens))
    if prompts is None:
        raise ConfigError(
            "How long are the prompts? Give --prompt-tokens with their mean length (and --longest-prompt), or "
            "--prompts with a file, which the model's tokenizer counts."
        )
    return read_prompts(config, shape, prompts, None)[0]


def _refuse(config: PPOConfig, planned: PreTrainedConfig, lengths: Lengths, devices: Devices) -> None:
    """Raise for what a run would refuse, too."""
    context = getattr(planned.get_text_config(), "max_position_embeddings", None)
    width = lengths.longest + config.max_new_tokens
    if context is not None and width > context:
        raise ConfigError(
            f"A prompt of {lengths.longest} tokens and max_new_tokens {config.max_new_tokens} do not fit the model's "
            f"context of {context}. Lower one of them."
        )
    if config.shard_base and devices.count == 1:
        raise ConfigError("shard_base divides the base among devices, and there is one. Set devices, or leave it out.")


def _here(
    config: PPOConfig,
    planned: PreTrainedConfig,
    shape: ModelShape,
    lengths: Lengths,
    response: float,
    devices: Devices,
) -> Case:
    """This machine: its own memory, and speeds that a probe measures, with as many threads as a process will have."""
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device, lambda: shape.parameters)
    free = free_memory(device)
    if free is not None and device.type != "cuda":
        free //= devices.count
    threads = config.threads or (1 if devices.count > 1 and not os.environ.get("OMP_NUM_THREADS") else None)
    if device.type == "cpu":  # torchrun gives each process of several one thread
        use_threads(threads, shape.hidden)
    program = program_size() if device.type == "cpu" else PROGRAM  # before the probe, which makes this process larger
    speed = probe(config.changed(threads=threads), planned, lengths, response, device, dtype, devices)
    return Case(config, shape, lengths, response, dtype, device, free, devices, speed, program)


def _elsewhere(
    config: PPOConfig, shape: ModelShape, lengths: Lengths, response: float, devices: Devices, hardware: Hardware
) -> Case:
    hosts = hosts_of(hardware, devices.count)
    device = torch.device(hardware.kind)
    dtype = DTYPES[config.dtype] if config.dtype != "auto" else _stored(hardware, shape.parameters)
    speed = published_speed(hardware, hosts)
    return Case(config, shape, lengths, response, dtype, device, hardware.available, devices, speed, PROGRAM)


def _stored(hardware: Hardware, parameters: int) -> torch.dtype:
    """What ``dtype: auto`` is there: 16 bits on a GPU, and for large models on a Mac or where memory is short."""
    short = 4 * parameters > hardware.memory / 4
    half = hardware.kind == "cuda" or (parameters >= LARGE and (hardware.kind == "mps" or short))
    return torch.bfloat16 if half else torch.float32


def hosts_of(hardware: Hardware, devices: int) -> int:
    """Hosts that so many devices are in; raises if one of them would have fewer than the others."""
    hosts = -(-devices // hardware.per_host)
    if devices % hosts:
        raise ConfigError(
            f"{devices} devices do not fill hosts of {hardware.per_host} {hardware.name}: torchrun starts as many "
            f"processes on each host. Set devices to {hosts * hardware.per_host} or {devices - devices % hosts}."
        )
    return hosts


def _with_pool(case: Case, wishes: Wishes) -> Case:
    """The same with servers, if the settings name any."""
    count = len(case.config.engine_url) if case.config.engine == "vllm" else 0
    if not count:
        if wishes.server_hardware is not None:
            raise ConfigError("server_hardware is given, and there are no servers. Set servers, or leave it out.")
        return case
    name = wishes.server_hardware or wishes.hardware
    if name == THIS:
        return dataclasses.replace(case, pool=Pool(count, THIS, case.available, case.speed))
    hardware = find_hardware(name)
    return dataclasses.replace(case, pool=Pool(count, name, hardware.memory, serving_speed(published_speed(hardware))))


def advise_plan(plan: Plan) -> list[Change]:
    """What to change in the settings so that each training device has room; nothing if it has."""
    case = plan.case
    config, shape, width = case.config, case.shape, case.lengths.longest + case.config.max_new_tokens
    half: Precision | None = "bfloat16" if case.dtype == torch.float32 and case.device.type != "cpu" else None

    def measure(changed: PPOConfig) -> Memory:
        other = shape
        if not same_shape(changed, config):
            layers = changed.trainable_layers or shape.layers
            each, plain = shape.adapter / shape.trained_layers, changed.base_bits is not None
            block = dataclasses.replace(shape.block, fused=shape.block.fused and not plain)
            other = dataclasses.replace(shape, adapter=int(each * layers), trained_layers=layers, block=block)
        stored = case.dtype if changed.dtype == "auto" else DTYPES[changed.dtype]
        devices = Devices(case.devices.count, changed.shard_base)
        return make_plan(dataclasses.replace(case, config=changed, shape=other, dtype=stored, devices=devices)).memory

    found = options(config, shape, width, half, case.devices.count)
    return advise(config, plan.memory, case.available, measure, found)
