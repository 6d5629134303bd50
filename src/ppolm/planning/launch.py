"""The commands that start a planned run: servers, and the training in one or more processes, on one or more hosts."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ppolm.config import PPOConfig
from ppolm.errors import ConfigError
from ppolm.names import EMBEDDED, SERVED_RANKS

PORT = 29400
"""Where the hosts of a job meet."""
SERVER_PORT = 8000
FOLDER = "/shared/adapters"
"""A folder that trainers and servers see under the same path."""
PROMPTS = "path/to/prompts.jsonl"
"""What commands name as the prompts where only their lengths are known."""


@dataclass(frozen=True)
class Launch:
    """How a run is started."""

    devices: int = 1
    hosts: int = 1
    servers: int = 0
    width: int = 0
    """Tokens of the longest prompt with its response, which servers have to hold."""
    rank: int = 1
    """The highest rank of the adapters that servers are given."""


def commands(config: PPOConfig, default: PPOConfig, launch: Launch, file: str | None = None) -> list[tuple[str, str]]:
    """Each command with where it is to be started; ``default``: the settings that the flags need not repeat."""
    words = [*launcher(launch), "train", *([] if file is None else ["--config", file]), *flags(config, default)]
    where = f"on every host, with its NUMBER from 0 to {launch.hosts - 1}" if launch.hosts > 1 else "start"
    served = [("on every server", server_command(config, launch))] if launch.servers else []
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


def server_command(config: PPOConfig, launch: Launch) -> str:
    """A vLLM server that takes new adapters of the run's rank."""
    rank = next(rank for rank in SERVED_RANKS if rank >= launch.rank)
    words = ["vllm", "serve", config.model_name, "--port", str(SERVER_PORT), "--enable-lora"]
    words += ["--max-lora-rank", str(rank), "--max-loras", "3", "--max-model-len", str(launch.width)]
    return "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 " + shlex.join(words)


def flags(config: PPOConfig, default: PPOConfig) -> list[str]:
    """The flags that turn one configuration into another; the model's name always."""
    words = ["--model-name", config.model_name]
    if config.prompts is None and config.model_name != EMBEDDED:
        words += ["--prompts", PROMPTS]
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


def with_servers(values: Mapping[str, Any], servers: int) -> dict[str, Any]:
    """The settings of a run whose responses so many servers sample, at addresses that they have not been given yet."""
    given, engine = tuple(values["engine_url"] or ()), values["engine"]
    if engine == "mlx" or (given and len(given) != servers):
        said = engine if engine == "mlx" else f"{len(given)} addresses"
        raise ConfigError(f"servers is {servers}, and the settings say {said}. Leave one of them out.")
    urls, folder = given or server_urls(servers), values["engine_folder"] or FOLDER
    return {"engine": "vllm", "engine_url": urls, "engine_folder": folder}


def server_urls(count: int) -> tuple[str, ...]:
    """Addresses of servers that have none yet."""
    return tuple(f"http://server-{number}:{SERVER_PORT}" for number in range(1, count + 1))
