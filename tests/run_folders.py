"""Run folders with a few metrics, for tests of what reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ppolm.runs.run_status import RunStatus


def make_run(folder: Path, steps: int = 3, status: RunStatus | None = None, **columns: Any) -> Path:
    """A run folder with some metrics."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("model_name: embedded\n")
    rows = [
        {"kind": "train", "step": i, "avg_reward": i / 10, "kl": 0.5, "seconds/generate": 2.0, **columns}
        for i in range(1, steps + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if status:
        (folder / "status.json").write_text(json.dumps(status.to_dict()))
    return folder
