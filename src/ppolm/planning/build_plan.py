"""From settings and wishes to a plan: reads the model's configuration, finds the hardware, and probes this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig

from ppolm.base_setup.device import DTYPES, LARGE, PROGRAM, Precision
from ppolm.config import PPOConfig
from ppolm.errors import ConfigError
from ppolm.estimate.advice import Change, advise, options
from ppolm.estimate.estimate import read_prompts, same_shape
from ppolm.estimate.memory import Devices, Lengths, Memory
from ppolm.estimate.model_shape import ModelShape
from ppolm.messages import brief
from ppolm.names import SERVED_RANKS
from ppolm.planning.hardware import THIS, Hardware, find_hardware, published_speed, serving_speed
from ppolm.planning.launch import with_servers
from ppolm.planning.model import model_config, shape_config, shape_from
from ppolm.planning.plan import Case, Plan, make_plan
from ppolm.planning.sampled import block_kernels, rewritten_bytes
from ppolm.planning.serving import Pool
from ppolm.planning.this_machine import refuse_missing, slowed, this_case
from ppolm.storage.starting_point import started


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
    config = _with_servers(started(config), wishes.servers)
    planned = shape_config(wishes.shape) if wishes.shape else model_config(config)
    shape = shape_from(planned, config)
    lengths = _lengths(config, shape, wishes, prompts)
    response = float(min(wishes.response_tokens or config.max_new_tokens, config.max_new_tokens))
    devices = Devices(wishes.devices, config.shard_base)
    _refuse(config, planned, shape, lengths, devices)
    if wishes.hardware == THIS:
        case = this_case(config, planned, shape, lengths, response, devices)
    else:
        case = _elsewhere(config, shape, lengths, response, devices, find_hardware(wishes.hardware))
    return config, make_plan(_with_pool(case, wishes))


def _with_servers(config: PPOConfig, servers: int) -> PPOConfig:
    """Servers that are only counted get addresses; those that settings name are counted."""
    return config.changed(**with_servers(vars(config), servers)) if servers else config


def _lengths(config: PPOConfig, shape: ModelShape, wishes: Wishes, prompts: Sequence[Any] | None) -> Lengths:
    if wishes.prompt_tokens is not None:
        return Lengths(wishes.longest_prompt or wishes.prompt_tokens, float(wishes.prompt_tokens))
    if prompts is None:
        raise ConfigError(
            "How long are the prompts? Give --prompt-tokens with their mean length (and --longest-prompt), or "
            "--prompts with a file, which the model's tokenizer counts."
        )
    return read_prompts(config, shape, prompts, None)[0]


def _refuse(
    config: PPOConfig, planned: PreTrainedConfig, shape: ModelShape, lengths: Lengths, devices: Devices
) -> None:
    """Raise for what a run would refuse, too."""
    context = getattr(planned.get_text_config(), "max_position_embeddings", None)
    width = lengths.longest + config.max_new_tokens
    if context is not None and width > context:
        raise ConfigError(
            f"A prompt of {lengths.longest} tokens and max_new_tokens {config.max_new_tokens} do not fit the model's "
            f"context of {context}. Lower one of them."
        )
    if config.engine == "vllm" and shape.rank > SERVED_RANKS[-1]:
        raise ConfigError(
            f"The adapter in {config.start_from or config.sft_adapter} has rank {shape.rank}, and vLLM serves ranks up "
            f"to {SERVED_RANKS[-1]}. Use engine: local, or another adapter."
        )
    if config.shard_base and devices.count == 1:
        raise ConfigError("shard_base divides the base among devices, and there is one. Set devices, or leave it out.")


def _elsewhere(
    config: PPOConfig, shape: ModelShape, lengths: Lengths, response: float, devices: Devices, hardware: Hardware
) -> Case:
    _refuse_device(config, hardware)
    hosts = hosts_of(hardware, devices.count)
    device = torch.device(hardware.kind)
    dtype = DTYPES[config.dtype] if config.dtype != "auto" else _stored(hardware, shape.parameters)
    fused = shape.block.fused
    speed = published_speed(hardware, dtype, hosts, block_kernels(shape, config), fused)
    converts = fused and not hardware.half and dtype != torch.float32
    again = rewritten_bytes(shape, config, dtype, converts)
    found = (config, shape, lengths, response, dtype, device, hardware.available, devices, speed, PROGRAM)
    return Case(*found, rewritten=again)


def _refuse_device(config: PPOConfig, hardware: Hardware) -> None:
    """Raise if the settings name another kind of device than the hardware is."""
    named = config.device.partition(":")[0]
    if named not in ("auto", hardware.kind):
        raise ConfigError(
            f"device is {brief(config.device)}, and {hardware.name} is planned as {hardware.kind}. Leave device out, "
            "or name other hardware."
        )


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
        return _with_servers_here(case, count, wishes.hardware == THIS)
    hardware = find_hardware(name)
    speed = serving_speed(published_speed(hardware, torch.bfloat16))
    return dataclasses.replace(case, pool=Pool(count, name, hardware.memory, speed))


def _with_servers_here(case: Case, count: int, beside: bool) -> Case:
    """Servers on this machine: each has a GPU of its own, or all share the machine."""
    if not beside:
        raise ConfigError(
            "server_hardware is this, and the training is planned on other hardware: this machine is measured only if "
            "it trains. Name the servers' hardware."
        )
    refuse_missing(case.device, case.devices.count + count)
    apart = case.device.type == "cuda"
    note = f"{count} servers and the training share this machine, and its memory is counted for each of them alone."
    free = case.available if apart or case.available is None else case.available // count
    pool = Pool(count, THIS, free, case.speed if apart else slowed(case.speed, 1 / count))
    return dataclasses.replace(case, pool=pool, notes=case.notes if apart else (*case.notes, note))


def advise_plan(plan: Plan) -> list[Change]:
    """What to change in the settings so that each training device has room; nothing if it has."""
    case = plan.case
    config, shape, width = case.config, case.shape, case.lengths.longest + case.config.max_new_tokens
    half: Precision | None = "bfloat16" if case.dtype == torch.float32 and case.device.type != "cpu" else None

    def measure(changed: PPOConfig) -> Memory:
        other = shape if same_shape(changed, config) else _changed_shape(shape, changed)
        stored = case.dtype if changed.dtype == "auto" else DTYPES[changed.dtype]
        devices = Devices(case.devices.count, changed.shard_base)
        return make_plan(dataclasses.replace(case, config=changed, shape=other, dtype=stored, devices=devices)).memory

    found = options(config, shape, width, half, case.devices.count)
    return advise(config, plan.memory, case.available, measure, found)


def _changed_shape(shape: ModelShape, changed: PPOConfig) -> ModelShape:
    """The shape with fewer trained blocks, or with a packed base, without reading the model again."""
    layers = changed.trainable_layers or shape.layers
    sizes = {name: getattr(shape, name) * layers // shape.trained_layers for name in ("adapter", "value_adapter")}
    plain = changed.base_bits is not None
    block = dataclasses.replace(shape.block, fused=shape.block.fused and not plain, copied=shape.block.copied or plain)
    return dataclasses.replace(shape, **sizes, trained_layers=layers, block=block)


def advised(config: PPOConfig, advice: Sequence[Change]) -> PPOConfig:
    """The settings with everything that is advised."""
    changed: dict[str, Any] = {change.name: change.value for change in advice}
    return config.changed(**changed)
