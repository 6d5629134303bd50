"""Settings that had another name in earlier versions: what is stored under the old one still loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppolm.errors import ConfigError
from ppolm.messages import brief


def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values under their present names: ``tensorboard: true`` is now one of the tools in ``log_to``."""
    found = dict(values)
    if "tensorboard" not in found:
        return found
    old = found.pop("tensorboard")
    if not isinstance(old, bool):
        raise ConfigError(
            f"tensorboard is {brief(old)}, expected true or false; its name is now log_to: [tensorboard]."
        )
    if "log_to" in found:
        raise ConfigError("tensorboard is now one of the tools in log_to, which is given too. Leave tensorboard out.")
    return {**found, "log_to": ["tensorboard"] if old else []}
