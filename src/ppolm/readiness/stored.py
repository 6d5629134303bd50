"""What a reward model's own report says of it, for those who are about to train on it."""

from __future__ import annotations

import json
from pathlib import Path


def doubts_about(folder: Path) -> str | None:
    """Why a reward model should not be trained on, by the report beside it; None if nothing says so."""
    try:
        report = json.loads((folder / "readiness.json").read_text(encoding="utf-8"))
        verdict, reasons = report["verdict"], [str(reason["text"]) for reason in report["reasons"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no report, or none that can be read
    return "; ".join(reasons) if verdict == "not ready" else None
