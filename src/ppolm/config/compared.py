"""The settings in which the processes of a job must agree, in a form that can be compared between machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppolm.config.paths import FOLDERS, REWARDS, SOURCES

if TYPE_CHECKING:
    from ppolm.config.model_settings import ModelSettings

OWN = frozenset({"device", "threads"})
"""Settings that each process may have for itself."""
PLACES = FOLDERS | SOURCES | REWARDS | {"output_dir", "output", "engine_folder", "feedback_store"}
"""Settings that may be paths. A folder may have another path on another machine, but not another name."""


def compared(settings: ModelSettings) -> dict[str, Any]:
    """Settings by name; of paths the last part."""
    values = settings.to_dict()
    return {name: _last(value) if name in PLACES else value for name, value in values.items() if name not in OWN}


def _last(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_last(item) for item in value]
    if not isinstance(value, str) or "://" in value:
        return value
    return value.replace("\\", "/").rstrip("/").rpartition("/")[2]
