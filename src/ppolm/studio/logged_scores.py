"""Scores of responses that a run has logged: what its reward said of what people have judged."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from ppolm.feedback.record import Source
from ppolm.runs.run_overview import read_settings
from ppolm.studio.workspace import Workspace

MOST_TABLES = 64
"""Tables whose scores are kept, the ones asked for last."""


class LoggedScores:
    """The scores in the tables of a workspace's runs, by where a response came from."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[Path, int], list[float | None]] = OrderedDict()

    def of(self, source: Source) -> float | None:
        """The score of a training response, if its run is here, has a table of the step, and did not ask people."""
        if source.run is None or source.step is None or source.sequence is None or source.purpose != "training":
            return None
        runs = [path for path in self.workspace.runs().values() if path.name == source.run]
        if len(runs) != 1:
            return None
        scores = self._scores(runs[0], source.step)
        return scores[source.sequence] if 0 <= source.sequence < len(scores) else None

    def _scores(self, run: Path, step: int) -> list[float | None]:
        path = run / "table" / f"step-{step:06d}.parquet"
        try:
            key = (path, path.stat().st_mtime_ns)
        except OSError:
            return []
        with self._lock:
            known = self._tables.pop(key, None)
        if known is None:
            known = [] if "human" in (read_settings(run).get("reward") or ()) else read_scores(path)
        with self._lock:
            self._tables[key] = known
            while len(self._tables) > MOST_TABLES:
                self._tables.popitem(last=False)
        return known


def read_scores(path: Path) -> list[float | None]:
    """Score per sequence of a table: the sum over its tokens. Empty if the table cannot be read."""
    try:
        table = parquet.read_table(path, columns=["sequence", "score"])
        sequence = table.column("sequence").to_numpy()
        score = np.asarray(table.column("score").to_numpy(), dtype=float)
    except (OSError, KeyError, pa.ArrowException):
        return []
    sums = np.bincount(sequence, weights=score) if len(sequence) else np.zeros(0)
    return [float(value) if np.isfinite(value) else None for value in sums]
