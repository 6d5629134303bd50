"""How a setting is declared: everything about it is written at its field.

    gamma: float = setting(0.99, group="advantage", at_least=0, at_most=1, on_resume="fixed")

The type gives the choices (``Literal``), the docstring below the field its meaning. The checks, ``--help``,
docs/settings.md and the list of settings a resumed run may change are all derived from these.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ppolm.config.groups import Group
from ppolm.config.limits import Limits
from ppolm.errors import ConfigError
from ppolm.messages import brief

OnResume = Literal["fixed", "may change"]
"""Whether a resumed training may change a setting. It may if the numbers of a step do not depend on it: where and for
how long it runs, what it writes, how much memory it uses, which code path computes it, what happens when a reward
fails."""

T = TypeVar("T")
KEY = "setting"


@dataclass(frozen=True)
class Setting:
    """What the declaration of a setting says besides its type and default."""

    group: Group
    on_resume: OnResume
    limits: Limits


def setting(
    default: T,
    *,
    group: Group,
    on_resume: OnResume,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    not_blank: bool = False,
) -> T:
    """Declare a field of a configuration. ``on_resume`` has no default, so that the author has to decide."""
    limits = Limits(at_least, above, at_most, below, not_blank)
    return dataclasses.field(default=default, metadata={KEY: Setting(group, on_resume, limits)})


def settings_of(kind: type[Any]) -> dict[str, Setting]:
    """Every setting of a configuration, by name, in field order.

    A user's subclass may have plain fields, which are not listed here: they have no range and are fixed on resume.
    """
    return {field.name: field.metadata[KEY] for field in dataclasses.fields(kind) if KEY in field.metadata}


def may_change(kind: type[Any]) -> frozenset[str]:
    """Settings that a resumed training may change."""
    return frozenset(name for name, one in settings_of(kind).items() if one.on_resume == "may change")


def check_limits(config: Any) -> None:
    """Raise ConfigError for a value out of its range; types have been checked before."""
    for name, one in settings_of(type(config)).items():
        value = getattr(config, name)
        if one.limits.hold(value):
            continue
        if one.limits.not_blank:
            raise ConfigError(f"{name} is empty, expected a name.")
        words = one.limits.words()
        if words.startswith("within"):
            words = ("numbers " if isinstance(value, tuple) else "a number ") + words
        raise ConfigError(f"{name} is {brief(value)}, expected {words}.")


def meanings(kind: type[Any]) -> dict[str, str]:
    """The docstring below each field, as one line; parsed from the source, so only for help and documentation."""
    found: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if dataclasses.is_dataclass(parent):
            found |= _docstrings(parent)
    return found


def _docstrings(kind: type[Any]) -> dict[str, str]:
    try:
        (declared,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError):  # installed without its source: the flags still work
        return {}
    assert isinstance(declared, ast.ClassDef)
    found = {}
    for statement, after in zip(declared.body, declared.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
            if isinstance(text, str):
                found[statement.target.id] = " ".join(text.split())
    return found
