"""The flags of every command as Markdown tables, from the classes that the commands themselves parse."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tyro

from ppolm.cli import settings
from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.config.groups import LEADING
from ppolm.config.limits import Limits
from ppolm.config.setting import meanings, settings_of
from scripts.settings_page import allowed, shown

HEAD = "| flag | values | default | meaning |\n|---|---|---|---|"
SHARED: dict[str, tuple[type[Any], type[Any]]] = {
    "train": (settings.TrainFlags, PPOConfig),
    "plan": (import_module("ppolm.cli.plan_command").PlanFlags, PPOConfig),
    "sft": (settings.SupervisedFlags, SFTConfig),
    "reward": (settings.SupervisedFlags, RewardConfig),
}
"""Commands that take settings: their own flags, and the configuration whose settings are flags as well."""


def flags_section(command: str) -> str:
    """The flags of a command: its own, then the settings that matter most, with a link to the others."""
    if command in SHARED:
        own, kind = SHARED[command]
        return f"{table(own)}\n\n{settings_table(kind)}"
    if classes := actions(command):
        return "\n\n".join(f"### {name}\n\n{table(kind)}" for name, kind in classes.items())
    found = arguments_of(import_module(f"ppolm.cli.{command}_command"))
    if not found:
        raise ValueError(
            f"No flags of ppolm {command} were found: its module declares no dataclass named ...Arguments. If they are "
            "elsewhere, add them to SHARED in scripts/command_flags.py."
        )
    return "\n\n".join(table(kind) for kind in found)


def actions(command: str) -> dict[str, type[Any]]:
    """The flags of a command with actions, such as ``ppolm feedback import``, by what one types; else empty.

    An action may have a module of its own: ``feedback_study.py``.
    """
    names = list(getattr(import_module(f"ppolm.cli.{command}_command"), "ACTIONS", ()))
    own = [f"{command}_{name}" for name in names if find_spec(f"ppolm.cli.{command}_{name}")]
    modules = [import_module(f"ppolm.cli.{name}") for name in (f"{command}_command", *own)]
    classes = (kind for module in modules for kind in arguments_of(module))
    found = {kind.__name__.removesuffix("Arguments").lower(): kind for kind in classes}
    return {f"ppolm {command} {name}": found[name] for name in names}


def arguments_of(module: ModuleType) -> list[type[Any]]:
    """The classes of flags that a module declares, without those that others of them extend."""
    found = [
        one
        for one in vars(module).values()
        if isinstance(one, type)
        and dataclasses.is_dataclass(one)
        and one.__module__ == module.__name__
        and one.__name__.endswith(("Arguments", "Flags"))
    ]
    return [one for one in found if not any(other is not one and issubclass(other, one) for other in found)]


def table(kind: type[Any]) -> str:
    """A row for each flag of a class: what has no name, then its own flags, then those that it inherits."""
    hints, texts = get_type_hints(kind, include_extras=True), meanings(kind)

    def place(field: dataclasses.Field[Any]) -> tuple[bool, bool]:
        return not positional(hints[field.name]), field.name not in vars(kind)["__annotations__"]

    fields = sorted(dataclasses.fields(kind), key=place)
    return "\n".join([HEAD, *(row(one, hints[one.name], texts[one.name]) for one in fields)])


def row(field: dataclasses.Field[Any], hint: Any, meaning: str) -> str:
    """One flag."""
    named = next((one.metavar for one in get_args(hint) if getattr(one, "metavar", None)), field.name.upper())
    plain = bare(hint)
    flag = named if positional(hint) else flag_name(field.name, plain)
    needed = field.default is dataclasses.MISSING
    values = "" if plain is bool else allowed(plain, Limits())
    default = "needed" if needed else default_shown(field.default, plain)
    return line(f"`{flag}`", values, default, meaning)


def positional(hint: Any) -> bool:
    """Whether a value is given without its name: declared as Positional[T], or by a mark among others."""
    (mark,) = get_args(tyro.conf.Positional[int])[1:]
    return mark in get_args(hint) or tyro.conf.Positional in get_args(hint)


def bare(hint: Any) -> Any:
    """A type without what tyro is told about it."""
    return bare(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def flag_name(name: str, hint: Any) -> str:
    """What one types."""
    words = name.replace("_", "-")
    return f"--{words}, --no-{words}" if hint is bool else f"--{words}"


def default_shown(value: Any, hint: Any) -> str:
    """A default: of a switch, yes or no."""
    if hint is bool:
        return "yes" if value else "no"
    if isinstance(value, tuple) and value:
        return f"`{' '.join(map(str, value))}`"
    return "none" if value == "" else shown(value)


def settings_table(kind: type[Any]) -> str:
    """The settings that ``--help`` begins with, and where the others are."""
    hints, texts, known = get_type_hints(kind), meanings(kind), settings_of(kind)
    rows = [
        line(
            f"`--{name.replace('_', '-')}`",
            allowed(hints[name], known[name].limits),
            shown(getattr(kind, name)),
            texts[name],
        )
        for name in LEADING[kind.__name__]
    ]
    others = len(known) - len(rows)
    about = (
        f"Every setting of a configuration is a flag, too. These matter most; the other {others} are in "
        "[settings.md](../settings.md), with their ranges and what may change on a resume:"
    )
    return "\n".join([about, "", HEAD, *rows])


def line(*cells: str) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
