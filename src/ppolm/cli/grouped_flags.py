"""Settings as flags under one heading per group. The flags themselves are flat: ``--learning-rate``, in any group.

tyro prints a heading for every nested dataclass, so a flat configuration is split into one per group and reassembled
after parsing.
"""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro

from ppolm.config import ModelSettings
from ppolm.config.groups import GROUPS, Group
from ppolm.config.setting import meanings, settings_of
from ppolm.config.without_effect import defaults, without_idle

S = TypeVar("S", bound=ModelSettings)


def grouped(own: Any, settings: ModelSettings, about: str | None) -> Any:
    """The defaults for tyro: the command's ``own`` flags, then the settings. ``about`` is the help's description."""
    kind = type(settings)
    types, texts, known = get_type_hints(kind), meanings(kind), settings_of(kind)
    declared: list[tuple[str, Any]] = [("own", Annotated[type(own), tyro.conf.arg(name="")])]
    parts = []
    for group in _groups(kind):
        names = [name for name, one in known.items() if one.group == group]
        helped = [(name, types[name], field(metadata={"help": texts.get(name, "")})) for name in names]
        part = make_dataclass(_attribute(group), helped)  # without checks: those need all settings
        heading = tyro.conf.arg(name=group, help=GROUPS[group])
        declared.append((_attribute(group), Annotated[part, heading, tyro.conf.OmitArgPrefixes]))
        parts.append(part(*(getattr(settings, name) for name in names)))
    arguments = make_dataclass("Arguments", declared)
    arguments.__doc__ = about
    return arguments(own, *parts)


def put_together(kind: type[S], arguments: Any, stored: S | None = None) -> S:
    """The configuration from the parsed groups, validated as always.

    Of ``stored`` settings, which nobody chose together with the flags, those without effect are reset, not refused.
    """
    values = parsed_values(kind, arguments)
    if stored is not None:
        values = without_idle(values, defaults(kind), vars(stored))
    return kind(**values)


def parsed_values(kind: type[ModelSettings], arguments: Any) -> dict[str, Any]:
    """The settings from the parsed groups, before they are checked."""
    values: dict[str, Any] = {}
    for group in _groups(kind):
        values |= vars(getattr(arguments, _attribute(group)))
    return values


def _groups(kind: type[ModelSettings]) -> list[Group]:
    """The groups that a configuration has settings in, in the order of ``GROUPS``."""
    used = {one.group for one in settings_of(kind).values()}
    return [group for group in GROUPS if group in used]


def _attribute(group: Group) -> str:
    return group.replace(" ", "_")
