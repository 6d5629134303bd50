"""How much of a machine's memory its processes may use: what it has, or what a container or a batch system allows.

A control group limits all processes in it and in the groups below it, so the smallest limit on the way up counts. The
kernel keeps copies of files in memory, which it gives up when memory is short: they count as free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
UNLIMITED = 2**60
"""Version 1 writes a number of this size where there is no limit."""


@dataclass(frozen=True)
class Group:
    """A control group as a folder of files, and what its version calls them."""

    folder: Path
    limit: str
    used: str
    cached: str
    """The line of ``memory.stat`` with the files that can be given up."""


def machine_size(root: Path = ROOT) -> int | None:
    """Bytes that the processes of this machine may use in all, if known."""
    found = [] if (whole := _physical()) is None else [whole]
    return min([*found, *(size for group in groups(root) if (size := _limit(group)) is not None)], default=None)


def machine_free(root: Path = ROOT) -> int | None:
    """Bytes of them that nothing uses now, or that can be given up, if known."""
    found = [] if (free := _available(root)) is None else [free]
    for group in groups(root):
        size, used = _limit(group), _number(group.folder / group.used)
        if size is not None and used is not None:
            found.append(max(0, size - used + _cached(group)))
    return min(found, default=machine_size(root))


def groups(root: Path = ROOT) -> Iterator[Group]:
    """The control groups that limit this process's memory, its own first.

    Inside a container the path that the kernel names may be the host's, and the group's own files lie at the top.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if number == "0" and not kinds:
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            top = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield Group(top.joinpath(*parts[:depth]), *names)


def _limit(group: Group) -> int | None:
    found = _number(group.folder / group.limit)
    return None if found is None or found >= UNLIMITED else found


def _cached(group: Group) -> int:
    lines = (line.split() for line in _text(group.folder / "memory.stat").splitlines())
    return next((int(words[1]) for words in lines if words[:1] == [group.cached] and words[1].isdigit()), 0)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not Unix
        return None


def _available(root: Path) -> int | None:
    lines = _text(root / "proc/meminfo").splitlines()
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found and found[0][1].isdigit() else None


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None  # "max" where there is no limit


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # not Linux, or no such group
        return ""
