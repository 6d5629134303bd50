"""What a studio looks at: folders of runs, each known to a browser by an id, never by a path."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import Counter, OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

from ppolm.messages import brief
from ppolm.runs.metrics_tail import MetricsTail
from ppolm.runs.run_overview import METRICS, RunOverview, age_of, find_runs, overview
from ppolm.runs.run_status import is_alive, read_status
from ppolm.studio.answers import NotFoundError

PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FRESH_SECONDS = 1.0
"""How long a list of folders is taken as it is: several pages may ask for it at once."""
WATCHED = (METRICS, "status.json", "best/best.json", ".lock", "table")
"""Files of a run whose change is news."""
MOST_TAILS = 64
"""Runs whose metrics are kept in memory, the ones looked at last."""


class Workspace:
    """The runs below some folders. Every request names them by id, and only folders that were found have one."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = [folder.absolute() for folder in folders]
        self._lock = threading.Lock()
        self._found: dict[str, Path] = {}
        self._looked = -FRESH_SECONDS
        self._overviews: dict[Path, tuple[Any, RunOverview]] = {}
        self._tails: OrderedDict[Path, MetricsTail] = OrderedDict()

    def runs(self) -> dict[str, Path]:
        """All run folders by id."""
        with self._lock:
            if time.monotonic() - self._looked > FRESH_SECONDS:
                paths = dict.fromkeys(path for folder in self.folders for path in find_runs(folder))
                self._found = name_apart(list(paths))
                self._looked = time.monotonic()
            return self._found

    def run(self, run_id: str) -> Path:
        """The folder of a run."""
        path = self.runs().get(run_id)
        if path is None:
            raise NotFoundError(f"There is no run {brief(run_id)} here. It may have been moved or removed.")
        return path

    def overview(self, path: Path) -> RunOverview:
        """A run at a glance; one that ended and did not change is not read again."""
        mark = self.mark(path)
        with self._lock:
            known = self._overviews.get(path)
        if known is not None and known[0] == mark and known[1].state != "running":
            return replace(known[1], age=age_of(path, read_status(path)))
        found = overview(path)
        with self._lock:
            self._overviews[path] = (mark, found)
        return found

    @staticmethod
    def mark(path: Path) -> tuple[Any, ...]:
        """Changes when anything that a page shows of a run does; one that is killed changes no file."""
        marks: list[Any] = [is_alive(path)]
        for file in WATCHED:
            try:
                found = (path / file).stat()
                marks.append((found.st_mtime_ns, found.st_size))
            except OSError:
                marks.append(None)
        return tuple(marks)

    def metrics(self, path: Path) -> MetricsTail:
        """The metrics of a run, read up to now."""
        with self._lock:
            tail = self._tails.pop(path, None) or MetricsTail(path / METRICS)
            self._tails[path] = tail
            while len(self._tails) > MOST_TAILS:
                self._tails.popitem(last=False)
            tail.refresh()
            return tail


def name_apart(paths: list[Path]) -> dict[str, Path]:
    """Folders by an id for addresses: the folder's name if it is plain and nobody else's, else with a digest."""
    names = Counter(path.name for path in paths)
    found = {}
    for path in paths:
        own = PLAIN_NAME.fullmatch(path.name) and names[path.name] == 1
        digest = hashlib.sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:10]
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name)[:60].strip(".-")
        found[path.name if own else f"{readable or 'run'}~{digest}"] = path
    return found
