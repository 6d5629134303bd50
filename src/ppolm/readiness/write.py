"""Writing the readiness report to files next to the model, and as a summary for the terminal."""

from __future__ import annotations

import json
from pathlib import Path

from ppolm.readiness.markdown import markdown, summary_lines
from ppolm.readiness.picture import draw
from ppolm.readiness.readiness_report import Readiness


def write_readiness(folder: Path, readiness: Readiness) -> None:
    """Write readiness.json, readiness.md and readiness.png into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "readiness.json").write_text(json.dumps(readiness.to_dict(), indent=1, allow_nan=False))
    (folder / "readiness.md").write_text(markdown(readiness), encoding="utf-8")
    draw(folder / "readiness.png", readiness)


def readiness_summary(readiness: Readiness) -> str:
    """A few lines for the terminal, ending with the verdict and its reasons."""
    return "\n".join(summary_lines(readiness))
