"""Paths in settings: made absolute so that they work from any folder, with suggestions for those that do not exist.

A run may be used from a different folder than it was started in, so it stores absolute paths. Names that are not
paths are left unchanged: Hub names, ``embedded``, rewards such as ``model`` or ``http://...``, and modules.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppolm.names import EMBEDDED

FOLDERS = frozenset({"model_name", "sft_adapter", "start_from", "reward_model"})
"""Settings that name folders."""
SOURCES = frozenset({"prompts", "eval_prompts", "data", "eval_data", "test_data", "reference_data"})
"""Settings that name data: files or dataset folders."""
REWARDS = frozenset({"reward", "judge"})
"""Settings that may name a function in a file."""
RUNS = Path("runs")
"""The default folder for results."""


def anchored(values: Mapping[str, Any], base: Path | None = None) -> dict[str, Any]:
    """Settings with an absolute path for everything that exists relative to ``base`` (None: the current folder)."""
    return {name: _anchored_setting(name, value, values, base or Path.cwd()) for name, value in values.items()}


def _anchored_setting(name: str, value: Any, values: Mapping[str, Any], base: Path) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_anchored_setting(name, item, values, base) for item in value)
    if not isinstance(value, str) or "://" in value:
        return value
    if name in FOLDERS:
        return value if value == EMBEDDED else absolute(value, base)
    if name in SOURCES:
        return value if value.partition(":")[0] == EMBEDDED else _with_ending(value, base)
    if name in REWARDS:  # a module may have the same name as a folder, so only files count as paths
        return _with_ending(value, base) if value.rpartition(":")[0].endswith(".py") else value
    if name == "engine_folder":  # it may not exist yet
        return _path(value, base)
    asked = (*_several(values.get("reward")), values.get("judge"))
    if name == "feedback_store" and "human" in asked:  # it may not exist yet
        return _path(value, base)
    return value


def absolute(name: str, base: Path | None = None) -> str:
    """The absolute path of a name if such a path exists; otherwise the name unchanged."""
    path = _path(name, base or Path.cwd())
    return path if name.strip() and os.path.exists(path) else name


def _with_ending(name: str, base: Path) -> str:
    """Like ``absolute``, for a name that may end in ``:split`` or ``:function``."""
    whole = absolute(name, base)
    file, colon, ending = name.rpartition(":")
    return whole if whole != name or not file else f"{absolute(file, base)}{colon}{ending}"


def _path(name: str, base: Path) -> str:
    return os.path.abspath(base / Path(name).expanduser())


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def did_you_mean(path: str | Path) -> str:
    """A "Did you mean" sentence for a folder that does not exist; empty if no folder has a similar name."""
    if os.path.exists(path):
        return ""
    missing, below = Path(path), RUNS / path
    if os.path.isdir(below):
        return f" Did you mean {below}?"
    parent = RUNS if str(missing.parent) == "." else missing.parent
    near = difflib.get_close_matches(missing.name, _folders(parent), n=1)
    return f" Did you mean {parent / near[0]}?" if near else ""


def _folders(parent: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(parent) if entry.is_dir()]
    except OSError:
        return []
