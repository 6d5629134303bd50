"""Settings as flags under one heading per group. The flags themselves are flat: ``--learning-rate``, in any group.

tyro prints a heading for every nested dataclass, so a flat configuration is split into one per group and reassembled
after parsing.
"""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro

from ppolm.config import ModelSettings
from ppolm.config.groups import GROUPS, LEADING, LEADS
from ppolm.config.setting import meanings, settings_of
from ppolm.config.without_effect import defaults, without_idle

S = TypeVar("S", bound=ModelSettings)


FIRST = "first"
"""The heading of the settings that matter most."""


def grouped(own: Any, settings: ModelSettings, about: str | None) -> Any:
    """The defaults for tyro: the command's ``own`` flags, then the settings. ``about`` is the help's description."""
    kind = type(settings)
    types, texts = get_type_hints(kind), meanings(kind)
    declared: list[tuple[str, Any]] = [("own", Annotated[type(own), tyro.conf.arg(name="")])]
    parts = []
    for heading, about_it, names in headings(kind):
        helped = [(name, types[name], field(metadata={"help": texts.get(name, "")})) for name in names]
        part = make_dataclass(_attribute(heading), helped)  # without checks: those need all settings
        shown = tyro.conf.arg(name=heading, help=about_it)
        declared.append((_attribute(heading), Annotated[part, shown, tyro.conf.OmitArgPrefixes]))
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
    for heading, _, _ in headings(kind):
        values |= vars(getattr(arguments, _attribute(heading)))
    return values


def headings(kind: type[ModelSettings]) -> list[tuple[str, str, list[str]]]:
    """Heading, what it is about, and settings: those that matter most, then the rest by group."""
    known = settings_of(kind)
    first = [name for name in LEADING.get(kind.__name__, ()) if name in known]
    rest = {name: one.group for name, one in known.items() if name not in first}
    groups = [(group, text, [name for name in rest if rest[name] == group]) for group, text in GROUPS.items()]
    return [one for one in [(FIRST, LEADS, first), *groups] if one[2]]


def _attribute(heading: str) -> str:
    return heading.replace(" ", "_")
