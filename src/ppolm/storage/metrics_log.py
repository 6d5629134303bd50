"""metrics.jsonl: one JSON object per line, append-only."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Append one JSON line. If a crash cut off the last line, it is ended first, so that no other line is damaged."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        line = json.dumps({name: _finite(value) for name, value in row.items()}, ensure_ascii=False)
        file.write(line.encode() + b"\n")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_metrics(run: str | Path, kind: str = "train") -> list[dict[str, Any]]:
    """The metrics of a run, ordered by step. For a step that was repeated after a resume, the last line counts."""
    rows: dict[float, dict[str, Any]] = {}
    path = Path(run) / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8").split("\n") if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # cut off by a crash
        if row.pop("kind", None) == kind:
            rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]
