"""Callbacks are checked before the first step: a mistyped method would otherwise never be called, and nobody told."""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ppolm.errors import ConfigError
from ppolm.hooks.callback import Callback
from ppolm.messages import brief

METHODS = {
    "on_start": ("run",),
    "on_step": ("step", "run"),
    "on_evaluation": ("evaluation", "run"),
    "on_checkpoint": ("checkpoint", "run"),
    "on_end": ("end", "run"),
}
"""The methods of a callback, and what each is called with."""


def checked_callbacks(callbacks: Sequence[Any]) -> dict[str, Any]:
    """The callbacks by name, or a ConfigError for the first one that cannot be used."""
    if not isinstance(callbacks, (list, tuple)):
        raise ConfigError(f"callbacks is {brief(callbacks)}, expected a list of callbacks.")
    for callback in callbacks:
        check(callback)
    kinds = Counter[str]()
    found = {}
    for callback in callbacks:
        name = type(callback).__name__
        kinds[name] += 1
        found[name if kinds[name] == 1 else f"{name} {kinds[name]}"] = callback
    return found


def check(callback: Any) -> None:
    """Raise ConfigError unless it has methods of a callback, no other name that looks like one, and their arguments."""
    if isinstance(callback, type):
        raise ConfigError(f"The callback {callback.__name__} is a class. Pass an object of it: {callback.__name__}().")
    name = type(callback).__name__
    methods = {method: getattr(callback, method) for method in dir(type(callback)) if method.startswith("on_")}
    for method, call in methods.items():
        if method not in METHODS and callable(call):
            near = difflib.get_close_matches(method, METHODS, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"A callback may have {', '.join(METHODS)}."
            raise ConfigError(f"The callback {name} has a method {brief(method)}, which nothing calls. {hint}")
    if not methods.keys() & METHODS.keys():
        raise ConfigError(
            f"{brief(callback)} is no callback: it has none of the methods {', '.join(METHODS)} (docs/callbacks.md)."
        )
    for method in methods.keys() & METHODS.keys():
        _check_call(name, method, methods[method])
    if not callable(getattr(callback, "state_dict", None)) and hasattr(callback, "load_state_dict"):
        raise ConfigError(f"The callback {name} has load_state_dict but no state_dict. Give it both, or neither.")


def _check_call(name: str, method: str, call: Any) -> None:
    expected = f"expected {method}(self, {', '.join(METHODS[method])})"
    if not callable(call):
        raise ConfigError(f"{name}.{method} is {brief(call)}, {expected}.")
    if inspect.iscoroutinefunction(call):
        raise ConfigError(f"{name}.{method} is async, and a run waits for nothing: {expected}, without async.")
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # a method in C that does not tell
        return
    try:
        signature.bind(*METHODS[method])
    except TypeError:
        raise ConfigError(f"{name}.{method}{signature} takes other arguments, {expected}.") from None


def told(callback: Any, method: str) -> bool:
    """Whether a callback does anything at this moment."""
    own = getattr(type(callback), method, None)
    return own is not None and own is not getattr(Callback, method)
