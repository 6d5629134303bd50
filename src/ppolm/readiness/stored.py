"""Reading a reward model's stored readiness report before training on it."""

from __future__ import annotations

import json
from pathlib import Path


def doubts_about(folder: Path) -> str | None:
    """Why a reward model should not be trained on, from the report in its folder; None if there is no reason."""
    try:
        report = json.loads((folder / "readiness.json").read_text(encoding="utf-8"))
        verdict, reasons = report["verdict"], [str(reason["text"]) for reason in report["reasons"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no report, or not readable
    return "; ".join(reasons) if verdict == "not ready" else None
