"""Which settings may change when an interrupted training is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppolm.config import ModelSettings
from ppolm.config.paths import anchored
from ppolm.config.setting import may_change
from ppolm.config.without_effect import without_effect
from ppolm.errors import RunFolderError


def refuse_changes(saved: Mapping[str, Any], config: ModelSettings, where: Path) -> None:
    """Raise if the configuration differs from a saved one in a setting that changes the numbers of a step.

    Each setting declares this as ``on_resume``. The path of the prompts may change, because prompts are compared by
    content; so may the length settings, because a run with a learning-rate schedule is compared by its steps. So may
    what has no effect because of another setting that may change, such as the cap on the weights of another engine.
    """
    wanted, saved = config.anchored().to_dict(), anchored(saved)  # the same path may be written in several ways
    allowed = may_change(type(config)) | _idle_now_or_then(saved, wanted)
    changed = [
        f"{name} {saved.get(name)!r} -> {wanted[name]!r}"
        for name in wanted
        if saved.get(name) != wanted[name] and name not in allowed
    ]
    if changed:
        raise RunFolderError(
            f"{where} was started with another configuration: {'; '.join(changed)}. Resume it with its own settings, "
            "or start a new run."
        )


def _idle_now_or_then(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> frozenset[str]:
    """After a change of the engine: settings without effect for the one or the other."""
    if "engine" not in wanted or saved.get("engine") in (None, wanted["engine"]):
        return frozenset()
    return without_effect({**wanted, **saved}) | without_effect(wanted)
