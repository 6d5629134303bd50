"""Command-line flags and YAML files as one PPOConfig.

The commands import torch only after their flags are parsed, so that --help and typing errors answer at once.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from ppolm.config import PPOConfig, SupervisedConfig
from ppolm.data.world.rows import EMBEDDED
from ppolm.embedded import RECIPES
from ppolm.errors import ConfigError
from ppolm.messages import LONGEST_MESSAGE, cut, printable
from ppolm.runs.output_folder import OutputFolder, read_settings

T = TypeVar("T")
S = TypeVar("S", bound=SupervisedConfig)


@dataclass(frozen=True)
class TrainArguments:
    """PPO fine-tuning. Settings come from --config (YAML), or from the run that --resume names; flags override them.

    A resumed run takes only changes that leave its numbers alone: its length, what it writes, memory, failed rewards.
    """

    settings: Annotated[PPOConfig, tyro.conf.arg(name="")]
    config: str | None = None
    """YAML file with settings. Examples are in configs/."""
    resume: str | None = None
    """Run folder (its newest checkpoint) or checkpoint folder to go on from, bit for bit."""
    estimate: bool = False
    """Print how much memory and how many operations the training would take, and end."""


@dataclass(frozen=True, kw_only=True)
class MachineArguments:
    """Where and how a model runs, for commands that use one without training it."""

    device: str | None = None
    """auto (CUDA, else Apple MPS, else CPU), or a torch device such as cuda:1. Default: the run's, or auto."""
    dtype: Literal["auto", "float32", "bfloat16"] | None = None
    """Precision of the base. Default: the run's, or auto: bfloat16 where the hardware has it and the model is large."""
    trust_remote_code: bool = False
    """Let the model repository run its own Python code. Off unless asked."""

    def given(self) -> dict[str, Any]:
        """The settings that flags change."""
        values = {"device": self.device, "dtype": self.dtype, "trust_remote_code": self.trust_remote_code or None}
        return {name: value for name, value in values.items() if value is not None}


def parse_train(argv: Sequence[str]) -> TrainArguments:
    """Flags over YAML over defaults."""
    config, resume = _value_of("--config", argv), _value_of("--resume", argv)
    if config is not None:
        settings = PPOConfig.from_yaml(config)
    elif resume is not None:
        from ppolm.runs.resume import run_of
        from ppolm.runs.run_folder import read_run_config

        settings = read_run_config(run_of(Path(resume)))
    elif _value_of("--model-name", argv) == EMBEDDED:
        settings = PPOConfig.from_yaml(RECIPES["ppolm train"])
        if _value_of("--eval-every", argv) == "0":  # who wants no evaluations has not asked for the recipe's judge
            settings = settings.changed(eval_every=0)
    else:
        settings = PPOConfig()
    return parse(TrainArguments, "ppolm train", argv, TrainArguments(settings, config, resume))


def parse(kind: type[T], program: str, argv: Sequence[str], default: Any = None) -> T:
    """A dataclass from flags, by tyro; its own messages for flags that do not exist."""
    options = {} if default is None else {"default": default}
    if all(len(argument) <= LONGEST_MESSAGE and argument.isprintable() for argument in argv):
        return tyro.cli(kind, prog=program, args=list(argv), **options)
    said = io.StringIO()  # tyro repeats what it does not understand, as it is
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, prog=program, args=list(argv), **options)
    finally:
        print(cut(printable(said.getvalue()), LONGEST_MESSAGE), end="", file=sys.stderr)


def parse_supervised(kind: type[S], program: str, argv: Sequence[str]) -> tuple[S, OutputFolder]:
    """Flags over YAML (or what --resume was started with) over defaults; and the folder for the result."""
    file, resume = _value_of("--config", argv), _value_of("--resume", argv)
    if resume is not None and file is not None:
        raise ConfigError("--resume goes on with the settings it was started with. Leave --config out.")
    if resume is not None:
        settings = read_settings(kind, Path(resume))
    elif file is None and _value_of("--model-name", argv) == EMBEDDED:
        settings = kind.from_yaml(RECIPES[program])
    else:
        settings = kind() if file is None else kind.from_yaml(file)
    arguments: Any = make_dataclass(
        "Arguments",
        [
            ("settings", Annotated[kind, tyro.conf.arg(name="")]),
            ("config", Annotated[str | None, tyro.conf.arg(help="YAML file with settings.")], None),
            ("resume", Annotated[str | None, tyro.conf.arg(help="Output folder of a training to go on with.")], None),
        ],
    )
    arguments.__doc__ = kind.__doc__
    config: S = parse(arguments, program, argv, arguments(settings, file, resume)).settings
    if not config.data:
        raise ConfigError("There is nothing to learn from. Give --data with a .jsonl, .csv or .parquet file.")
    if config.output is None:
        raise ConfigError("There is no place for the result. Give --output with a new folder.")
    if resume is not None:
        from ppolm.runs.consent import ask_consent

        ask_consent(Path(resume), config, argv, f"{program.removeprefix('ppolm ')} --resume")
    return config, OutputFolder(config, Path(config.output), None if resume is None else Path(resume))


def _value_of(flag: str, argv: Sequence[str]) -> str | None:
    """The value of ``--flag value`` or ``--flag=value``: it decides the defaults that tyro starts from."""
    for position, argument in enumerate(argv):
        if argument == flag:
            if position + 1 == len(argv):
                raise ConfigError(f"{flag} needs a value after it.")
            return argv[position + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return None
