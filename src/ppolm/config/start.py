"""Where the adapters are that a training starts from: in a run, in one of its checkpoints, or in a copy of the start.

A run that starts from another keeps a copy of what it started from in its own folder, ``start/``, which is laid out
like a checkpoint: so it does not depend on the other run any more.
"""

from __future__ import annotations

from pathlib import Path

START = "start"
"""The name of that folder."""


def policy_of(start: str | Path) -> Path:
    """The adapter of the policy: of a run the best one."""
    return Path(start) / "policy" if _is_laid_out(start) else Path(start) / "best"


def value_of(start: str | Path) -> Path:
    """Adapter and head of the value model that belongs to that policy."""
    return Path(start) / "value" if _is_laid_out(start) else Path(start) / "best" / "value"


def reference_of(start: str | Path) -> Path | None:
    """The copy of its reference that a run has in its start, if it keeps that of another run."""
    place = Path(start)
    run = place.parent.parent if place.parent.name == "checkpoints" else place
    return next((copy for copy in (place / "reference", run / START / "reference") if copy.is_dir()), None)


def _is_laid_out(start: str | Path) -> bool:
    """Whether policy and value model have folders of their own, as in a checkpoint."""
    return (Path(start) / "policy").is_dir()
