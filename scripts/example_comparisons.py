"""Writes examples/comparisons.jsonl: preferences of the embedded world, for the four commands of the README.

python -m scripts.example_comparisons
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from ppolm.embedded.world.rows import read_world

FILE = Path(__file__).parent.parent / "examples" / "comparisons.jsonl"
ROWS = 400


def comparisons() -> str:
    """The first training preferences, one JSON object per line."""
    columns = ("prompt", "chosen", "rejected")
    rows = (row for _, row in islice(read_world("train"), ROWS))
    return "".join(f"{json.dumps({name: row[name] for name in columns})}\n" for row in rows)


if __name__ == "__main__":
    FILE.write_text(comparisons(), encoding="utf-8")
