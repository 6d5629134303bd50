"""The commands that start a planned run: servers, and the training in one or more processes, on one or more hosts."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from typing import Any

from ppolm.config import PPOConfig

PORT = 29400
"""Where the hosts of a job meet."""
SERVER_PORT = 8000
FOLDER = "/shared/adapters"
"""A folder that trainers and servers see under the same path."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that a server can be started with."""


@dataclass(frozen=True)
class Launch:
    """How a run is started."""

    devices: int = 1
    hosts: int = 1
    servers: int = 0
    width: int = 0
    """Tokens of the longest prompt with its response, which servers have to hold."""


def commands(config: PPOConfig, default: PPOConfig, launch: Launch, file: str | None = None) -> list[tuple[str, str]]:
    """Each command with where it is to be started; ``default``: the settings that the flags need not repeat."""
    words = [*launcher(launch), "train", *([] if file is None else ["--config", file]), *flags(config, default)]
    where = f"on every host, with its NUMBER from 0 to {launch.hosts - 1}" if launch.hosts > 1 else "start"
    served = [("on every server", server_command(config, launch.width))] if launch.servers else []
    return [*served, (where, shlex.join(words))]


def launcher(launch: Launch) -> list[str]:
    """The words before ``train``. Several hosts meet at the first one; they may be started in any order."""
    if launch.devices == 1:
        return ["ppolm"]
    each = launch.devices // launch.hosts
    if launch.hosts == 1:
        return ["torchrun", "--standalone", "--nproc-per-node", str(each), "-m", "ppolm"]
    number = ["torchrun", "--nnodes", str(launch.hosts), "--node-rank", "NUMBER", "--nproc-per-node", str(each)]
    return [*number, "--master-addr", "FIRST-HOST", "--master-port", str(PORT), "-m", "ppolm"]


def server_command(config: PPOConfig, width: int) -> str:
    """A vLLM server that takes new adapters of the run's rank."""
    rank = next((rank for rank in RANKS if rank >= config.lora_r), config.lora_r)
    words = ["vllm", "serve", config.model_name, "--port", str(SERVER_PORT), "--enable-lora"]
    words += ["--max-lora-rank", str(rank), "--max-loras", "3", "--max-model-len", str(width)]
    return "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 " + shlex.join(words)


def flags(config: PPOConfig, default: PPOConfig) -> list[str]:
    """The flags that turn one configuration into another; the model's name always."""
    words = ["--model-name", config.model_name]
    for one in dataclasses.fields(PPOConfig):
        value = getattr(config, one.name)
        if one.name != "model_name" and value != getattr(default, one.name):
            words += _flag(one.name, value)
    return words


def _flag(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, tuple) else (value,)
    return [f"--{flag}", *map(str, values)]


def server_urls(count: int) -> tuple[str, ...]:
    """Addresses of servers that have none yet."""
    return tuple(f"http://server-{number}:{SERVER_PORT}" for number in range(1, count + 1))
