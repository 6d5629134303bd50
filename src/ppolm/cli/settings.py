"""Command-line flags and YAML files as one PPOConfig.

The commands import torch only after their flags are parsed, so that --help and mistyped flags answer at once.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro

from ppolm.cli.grouped_flags import grouped, put_together
from ppolm.cli.recipe import read_given, recipe_note, train_recipe
from ppolm.config import PPOConfig, SupervisedConfig
from ppolm.config.compared import compared
from ppolm.config.presets import preset_values
from ppolm.embedded import RECIPES
from ppolm.errors import ConfigError
from ppolm.messages import LONGEST_MESSAGE, cut, printable
from ppolm.names import EMBEDDED, EngineName
from ppolm.ranks import join_ranks
from ppolm.storage.output_folder import OutputFolder, read_settings

T = TypeVar("T")
S = TypeVar("S", bound=SupervisedConfig)


@dataclass(frozen=True)
class TrainFlags:
    """PPO fine-tuning. Settings come from --config (YAML), or from the run that --resume or --start-from names; flags
    override them.

    A resumed run accepts only changes that leave its numbers alone: its length, what it writes, memory, failed rewards.
    """

    config: str | None = None
    """YAML file with settings; `ppolm examples DIR` copies some. Paths in it are looked up beside it first."""
    resume: str | None = None
    """Run folder (its newest checkpoint) or checkpoint folder to continue from, bit for bit."""
    preset: str | None = None
    """Defaults for the settings that neither --config nor a flag names: lora-small, lora-large, demo or documents
    (docs/presets.md has the reasons of each). None: documents."""
    estimate: bool = False
    """Print how much memory and how many operations the training would take, and exit."""


@dataclass(frozen=True, kw_only=True)
class TrainArguments(TrainFlags):
    """The flags of the command itself, and the settings that result from all flags."""

    settings: PPOConfig


@dataclass(frozen=True)
class SupervisedFlags:
    """The flags of ``ppolm sft`` and ``ppolm reward`` themselves."""

    config: str | None = None
    """YAML file with settings."""
    resume: str | None = None
    """Output folder of an interrupted training to resume."""


@dataclass(frozen=True, kw_only=True)
class MachineArguments:
    """Where and how a model runs, for commands that use one without training it."""

    device: str | None = None
    """auto (CUDA, else Apple MPS, else CPU), or a torch device such as cuda:1. Default: the run's, or auto."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    """Precision of the base. Default: the run's, or auto: bfloat16 where the hardware has it and the model is large."""
    trust_remote_code: bool = False
    """Let the model repository run its own Python code. Off by default."""

    def given(self) -> dict[str, Any]:
        """The settings that are given as flags."""
        values = {"device": self.device, "dtype": self.dtype, "trust_remote_code": self.trust_remote_code or None}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class SamplingArguments(MachineArguments):
    """The same for commands that sample from a policy."""

    engine: EngineName | None = None
    """What samples from the policy: local, mlx, or vllm (docs/engines.md). Default: the run's, or local."""
    engine_url: tuple[str, ...] = ()
    """Addresses of vLLM servers, for --engine vllm. Default: the run's."""
    engine_folder: str | None = None
    """Folder that the servers can read under the same path. Default: the run's; on one machine it can be left out."""
    engine_timeout: float | None = None
    """Seconds that a server may take for one request. Default: the run's, or 600."""

    def given(self) -> dict[str, Any]:
        """The settings that are given as flags."""
        names = ("engine", "engine_url", "engine_folder", "engine_timeout")
        values = {name: getattr(self, name) for name in names}
        return super().given() | {name: value for name, value in values.items() if value not in (None, ())}


def parse_train(argv: Sequence[str]) -> TrainArguments:
    """Flags over YAML over defaults."""
    given = read_given(argv)
    others = (given.config, given.resume, given.start_from)
    by_recipe = others == (None, None, None) and given.model_name == EMBEDDED
    preset = {} if given.preset is None else preset_values(given.preset)
    if given.preset is not None and given.resume is not None:
        raise ConfigError("--resume keeps the settings that the run was started with. Leave --preset out.")
    if given.config is not None:
        settings = PPOConfig.from_yaml(given.config, under=preset)
    elif given.resume is not None:
        from ppolm.storage.stored_run import read_run_config, run_of

        settings = read_run_config(run_of(Path(given.resume)))
    elif given.start_from is not None:
        settings = settings_of_start(given.start_from, preset)
    else:
        settings = train_recipe(given) if by_recipe else PPOConfig.from_dict(preset)
    default = grouped(TrainFlags(given.config, given.resume, given.preset), settings, TrainFlags.__doc__)
    flags = parse(type(default), "ppolm train", argv, default)
    stored = given.resume is not None or (given.start_from is not None and given.config is None)
    settings = put_together(PPOConfig, flags, settings if stored else None)
    note = recipe_note(given, settings) if by_recipe and given.own_prompts else ""
    if note:
        print(note, file=sys.stderr)
    return TrainArguments(**vars(flags.own), settings=settings)


def settings_of_start(start: str, preset: Mapping[str, Any]) -> PPOConfig:
    """The settings of the run that another one starts from, for a run with a name and a reference of its own."""
    from ppolm.storage.stored_run import read_run_config, run_of

    own = {"start_from": start, "start_reference": "kept", "start_value": True, "sft_adapter": None, "run_name": None}
    return read_run_config(run_of(Path(start))).changed(**{**preset, **own})


def parse(kind: type[T], program: str, argv: Sequence[str], default: Any = None) -> T:
    """A dataclass from flags, parsed by tyro, which reports unknown flags itself."""
    options = {} if default is None else {"default": default}
    if all(len(argument) <= LONGEST_MESSAGE and argument.isprintable() for argument in argv):
        return tyro.cli(kind, prog=program, args=list(argv), **options)
    said = io.StringIO()  # tyro quotes verbatim what it does not understand
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, prog=program, args=list(argv), **options)
    finally:
        print(cut(printable(said.getvalue()), LONGEST_MESSAGE), end="", file=sys.stderr)


def see_it(run: Path) -> str:
    """The line that says how to look at a run."""
    return f"See it:      ppolm studio {shlex.quote(str(run))}"


def base_of(start: str) -> str:
    """The base model of a run to start from."""
    from ppolm.storage.stored_run import read_run_config, run_of

    return read_run_config(run_of(Path(start))).model_name


def parse_supervised(kind: type[S], program: str, argv: Sequence[str]) -> tuple[S, OutputFolder]:
    """Flags over YAML (or over the settings of the resumed training) over defaults; and the folder for the result."""
    given = read_given(argv)
    file, resume = given.config, given.resume
    if resume is not None and file is not None:
        raise ConfigError("--resume keeps the settings that the training was started with. Leave --config out.")
    ranks = join_ranks()
    ranks.agree("--resume", resume is not None)
    base = given.model_name or (None if given.start_from is None else base_of(given.start_from))
    if resume is not None:  # by one process: reading may tidy up
        settings = ranks.once(lambda: read_settings(kind, Path(resume)))
    elif file is None and base == EMBEDDED:
        settings = kind.from_yaml(RECIPES[program])
    else:
        settings = kind.from_yaml(file) if file else kind.from_dict({} if base is None else {"model_name": base})
    default = grouped(SupervisedFlags(file, resume), settings, kind.__doc__)
    config = put_together(kind, parse(type(default), program, argv, default))
    if not config.data:
        raise ConfigError("There is nothing to learn from. Give --data with a .jsonl, .csv or .parquet file.")
    if config.output is None:
        raise ConfigError("There is no output folder. Give --output with a new folder.")
    ranks.agree_on(" in their settings", compared(config))  # they decide what follows
    if resume is not None:
        from ppolm.storage.code_consent import ask_consent

        command = f"{program.removeprefix('ppolm ')} --resume"
        ranks.do_once(lambda: ask_consent(Path(resume), config, argv, command))
    return config, OutputFolder(config, Path(config.output), None if resume is None else Path(resume), ranks)
