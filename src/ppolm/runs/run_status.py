"""status.json: what a run is doing and how it ended, for whoever looks at its folder from outside."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ppolm.runs.metrics_tail import LAST_STEP
from ppolm.storage.claim import LOCK

STATUS = "status.json"
LARGEST = 1 << 20
"""Bytes of a status file beyond which it is not one of ours."""


def utc_now() -> str:
    """The time as a status file has it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def utc_time(text: str | None) -> datetime | None:
    """A time that a status file has; None for one that cannot be read."""
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found.astimezone(timezone.utc) if found and found.tzinfo else None


@dataclass(frozen=True)
class RunStatus:
    """What a run says of itself. A run that was killed still says ``running``: see ``is_alive``."""

    state: str
    """running, finished, converged, collapsed, over-optimised, stopped (by a callback), interrupted or failed."""
    total_steps: int = 0
    started: str = field(default_factory=utc_now)
    ended: str | None = None
    why: str = ""
    """What went wrong, if it failed; which callback stopped it, and why."""
    verdict: str = ""
    reasons: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def read_status(run: Path) -> RunStatus | None:
    """What a run last said of itself; None for an older run, or a file that cannot be read at the moment."""
    found = read_object(run / STATUS)
    if not isinstance(found.get("state"), str):
        return None
    reasons = found.get("reasons")
    total = found.get("total_steps")
    return RunStatus(
        state=found["state"],
        total_steps=total if type(total) is int and 0 <= total <= LAST_STEP else 0,
        started=_text(found, "started") or "",
        ended=_text(found, "ended"),
        why=_text(found, "why") or "",
        verdict=_text(found, "verdict") or "",
        reasons=tuple(str(reason) for reason in reasons) if isinstance(reasons, list) else (),
    )


def read_object(path: Path) -> dict[str, Any]:
    """A small JSON object from a file that others may be writing; empty if there is none."""
    try:
        if path.stat().st_size > LARGEST:
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_alive(run: Path) -> bool:
    """Whether the process that holds a run's folder is still there, as far as this machine can tell.

    The lock itself is not tried: whoever tries it holds it for a moment, and a training that starts in that moment
    would be refused.
    """
    owner = read_object(run / LOCK)
    pid, host = owner.get("pid"), owner.get("host")
    if not isinstance(pid, int) or pid <= 0:
        return False
    if host != socket.gethostname():  # a shared disk: its lock file goes when it ends, unless it was killed
        return True
    return _process_exists(pid) and not _started_later(pid, run / LOCK)


def _process_exists(pid: int) -> bool:
    if os.name == "nt":  # there, signal 0 would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it belongs to somebody else
    return True


def _started_later(pid: int, lock: Path) -> bool:
    """Whether a process is younger than the lock it is said to hold: then it only got the number of a dead one."""
    try:
        return Path(f"/proc/{pid}").stat().st_ctime > lock.stat().st_mtime + 2
    except OSError:
        return False


def _text(found: Mapping[str, Any], name: str) -> str | None:
    value = found.get(name)
    return value if isinstance(value, str) else None
