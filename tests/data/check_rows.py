"""Rows for tests of ``ppolm data check``, and their report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ppolm.data.check import report_of
from ppolm.data.tally import tally_rows


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return str(path)


def report(*rows: Any) -> dict[str, Any]:
    return report_of(tally_rows([(f"here, line {number},", row) for number, row in enumerate(rows, 1)], "here"))


def pair(prompt: str, chosen: str, rejected: str, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **more}


def rated(prompt: str, completion: str, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "completion": completion, **more}
