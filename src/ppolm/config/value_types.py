"""Converting each setting to its declared type, or refusing a value that cannot be converted."""

from __future__ import annotations

import dataclasses
import math
import types
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from ppolm.config.limits import LARGEST
from ppolm.errors import ConfigError
from ppolm.messages import brief, is_utf8

if TYPE_CHECKING:
    from ppolm.config.model_settings import ModelSettings

NAMES = {int: "a whole number", bool: "true or false", str: "text", float: "a number"}
"""What each type is called in messages."""


def coerce_types(config: ModelSettings) -> None:
    """Convert each value to its field's type where nothing is lost (1 -> 1.0, list -> tuple, '1e-5' -> 1e-5)."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = _coerce(field.name, getattr(config, field.name), hints[field.name])
        object.__setattr__(config, field.name, value)  # the dataclass is frozen


def _coerce(name: str, value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _coerce(name, value, next(arm for arm in get_args(hint) if arm is not type(None)))
    if origin is Literal:
        if isinstance(value, bool) and "on" in get_args(hint):  # YAML reads on and off as true and false
            value = "on" if value else "off"
        if value not in get_args(hint):
            raise ConfigError(f"{name} is {brief(value)}, expected one of: {', '.join(map(str, get_args(hint)))}.")
        return value
    if origin is tuple:
        items = () if value is None else (value,) if isinstance(value, (str, int, float)) else value
        if not isinstance(items, (list, tuple)):
            raise ConfigError(f"{name} is {brief(value)}, expected a list.")
        return tuple(_coerce(name, item, get_args(hint)[0]) for item in items)
    if hint is float and not isinstance(value, bool):
        try:  # YAML reads 1e-5, without a dot, as text
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"{name} is {brief(value)}, expected a number.") from None
        if not math.isfinite(number):
            raise ConfigError(f"{name} is {brief(value)}, expected a finite number.")
        return number
    if hint is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not hint:
        raise ConfigError(f"{name} is {brief(value)}, expected {NAMES[hint]}.")
    if hint is int and not -LARGEST <= value <= LARGEST:
        raise ConfigError(f"{name} is {brief(value)}, expected a whole number of at most 2^63 - 1.")
    if hint is str and (problem := _not_text(value)):
        raise ConfigError(f"{name} is {brief(value)}, which holds {problem}. Write it without.")
    return value


def _not_text(value: str) -> str | None:
    """What a text contains that no file name, URL or Hub name can contain, or None."""
    if "\0" in value:
        return "a NUL character"
    return None if is_utf8(value) else "bytes that are not UTF-8"
