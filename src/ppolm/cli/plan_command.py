"""``ppolm plan``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppolm.cli.grouped_flags import grouped, parsed_values
from ppolm.cli.recipe import read_given, train_recipe
from ppolm.cli.settings import parse
from ppolm.config import PPOConfig
from ppolm.errors import ConfigError
from ppolm.messages import json_text, printable
from ppolm.names import EMBEDDED

if TYPE_CHECKING:
    from ppolm.planning.plan_text import Told

PLACEHOLDER = "path/to/model"
"""What commands name as the model where only its shape is known."""


@dataclass(frozen=True)
class PlanFlags:
    """Memory of each device, time and network bytes of a PPO step, and the command to run, before anything is bought.

    Figures are computed from published ones of the hardware, or calibrated by a probe of some seconds on this machine;
    the text says which. All settings of `ppolm train` can be given, and --model-name may be a folder with config.json
    alone: no weights are loaded.
    """

    config: str | None = None
    """YAML file with settings, as for `ppolm train`."""
    hardware: str = "this"
    """this (measured), or laptop, mac, gpu-24gb, a100-80gb, h100-80gb."""
    devices: int = 1
    """Devices that train together, with a process on each."""
    servers: int = 0
    """vLLM servers that sample, with a device each; 0: those that --engine-url names, or none."""
    server_hardware: str | None = None
    """Hardware of the servers. Default: that of the training devices."""
    shape: str | None = None
    """Plan for a published shape instead of --model-name: qwen3-0.6b, qwen3-8b, llama-3-70b and others."""
    prompt_tokens: int | None = None
    """Mean length of the prompts in tokens. Default: counted in --prompts by the model's tokenizer."""
    longest_prompt: int | None = None
    """Length of the longest prompt. Default: prompt_tokens."""
    response_tokens: int | None = None
    """Mean length of the responses in tokens. Default: max_new_tokens."""
    json: bool = False
    """Print one JSON object, sizes in bytes and times in seconds."""


def main(argv: list[str]) -> None:
    """Print the plan; nothing is written."""
    flags, default, config = parse_plan(argv)
    told = plan_told(flags, default, config)
    print(json_text(told.values(), indent=1) if flags.json else printable(told.text()))


def parse_plan(argv: Sequence[str]) -> tuple[PlanFlags, PPOConfig, PPOConfig]:
    """The command's own flags, the settings that need no flag, and the settings that result."""
    given = read_given(argv)
    if given.config is not None:
        default = PPOConfig.from_yaml(given.config)
    else:
        default = train_recipe(given) if given.model_name == EMBEDDED else PPOConfig()
    arguments = grouped(PlanFlags(given.config), default, PlanFlags.__doc__)
    parsed = parse(type(arguments), "ppolm plan", argv, arguments)
    values = parsed_values(PPOConfig, parsed)
    if parsed.own.servers > 0:  # before the settings are checked: those of servers are refused where there are none
        from ppolm.planning.launch import with_servers

        values |= with_servers(values, parsed.own.servers)
    return parsed.own, default, PPOConfig(**values)


def plan_told(flags: PlanFlags, default: PPOConfig, config: PPOConfig) -> Told:
    """The plan with everything that is said about it."""
    from ppolm.planning.build_plan import Wishes, advise_plan, advised, build_plan, hosts_of
    from ppolm.planning.hardware import THIS, find_hardware
    from ppolm.planning.launch import Launch, commands
    from ppolm.planning.plan_text import Told

    values = dataclasses.asdict(flags)
    wishes = Wishes(**{one.name: values[one.name] for one in dataclasses.fields(Wishes)})
    if wishes.shape is not None:
        config = dataclasses.replace(config, model_name=PLACEHOLDER)
    config, plan = build_plan(config, wishes, _prompts(config, wishes))
    hosts = 1 if wishes.hardware == THIS else hosts_of(find_hardware(wishes.hardware), wishes.devices)
    servers = len(config.engine_url) if config.engine == "vllm" else 0
    width = plan.case.lengths.longest + config.max_new_tokens
    launch = Launch(wishes.devices, hosts, servers, width, plan.case.shape.rank)
    advice = tuple(advise_plan(plan))
    told = Told(plan, wishes.shape or Path(config.model_name).name, wishes.hardware, hosts, advice=advice)
    if told.can_start:
        started = config if plan.fits else advised(config, advice)
        told = dataclasses.replace(told, commands=commands(started, default, launch, flags.config))
    return told


def _prompts(config: PPOConfig, wishes: Any) -> list[Any] | None:
    """The prompts, if their lengths are not given."""
    if wishes.prompt_tokens is not None:
        return None
    source = EMBEDDED if config.prompts is None and config.model_name == EMBEDDED else config.prompts
    if source is None:
        return None
    if wishes.shape is not None:
        raise ConfigError("A shape has no tokenizer to count prompts with. Give --prompt-tokens.")
    from ppolm.data.load_rows import load_prompts

    return load_prompts(source, config.dataset_split, config.skip_bad_rows)
