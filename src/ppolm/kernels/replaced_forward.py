"""Replacing ``forward`` on a module instance: the only place that sets or removes a replacement.

The class keeps its own method, and the module its parts and names, so adapters inside it are still found, saved and
switched. The replacement is an entry of ``vars(module)``; without it, Python finds the class's method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


def install(module: nn.Module, forward: Callable[..., Any]) -> None:
    """Let a module compute with ``forward`` until ``undo``."""
    vars(module)["forward"] = forward


def find(module: nn.Module) -> Any:
    """The replacement of a module's own forward; None if there is none. Other libraries may put theirs there, too."""
    return vars(module).get("forward")


def undo(modules: Iterable[nn.Module]) -> None:
    """Let modules use their class's own forward again."""
    for module in modules:
        vars(module).pop("forward", None)


@contextmanager
def standing_in(modules: Iterable[nn.Module], forward: Callable[..., Any]) -> Iterator[None]:
    """Let modules compute with ``forward`` inside a ``with``; afterwards, also after an error, as before."""
    before = [(module, find(module)) for module in modules]
    try:
        for module, _ in before:
            install(module, forward)
        yield
    finally:
        for module, own in before:
            undo([module]) if own is None else install(module, own)


def pass_on(hidden_states: Tensor, *_: Any, **__: Any) -> Tensor:
    """The forward of a skipped block: its output is its input."""
    return hidden_states
