"""A run in which everything that can be text is hostile."""

from __future__ import annotations

import json
from pathlib import Path

from tests.made_runs import HOSTILE, evaluation_row, make_run, training_row
from tests.studio.stored_tables import make_table, store


def hostile_run(folder: Path) -> Path:
    """Write it: names of settings, reasons, prompts, responses, tokens, and lines of a million letters."""
    run = make_run(folder, settings={"reward": HOSTILE, HOSTILE: 1, "judge": "x" * 100_000})
    status = {"state": "failed", "why": HOSTILE, "verdict": HOSTILE, "reasons": [HOSTILE, "y" * 100_000]}
    (run / "status.json").write_text(json.dumps(status))
    rows = [evaluation_row(step, status="collapsed", reasons=[HOSTILE]) for step in (0, 3)]
    rows += [training_row(1, **{f"seconds/{HOSTILE}": 1.0})]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    samples = [
        {
            "kind": "eval",
            "step": step,
            "sequence": i,
            "prompt": prompt,
            "response": HOSTILE * 3 + "z" * 1_000_000,
            "reward": 1,
        }
        for step in (0, 3)
        for i, prompt in enumerate((HOSTILE, [{"role": HOSTILE, "content": HOSTILE}], {"odd": HOSTILE}))
    ]
    (run / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    words = [HOSTILE, "<script>alert(3)</script>", "\u202e", "\n", "\x00", '" onmouseover="alert(4)', "ok"]
    store(make_table([[0, 1, 2, 3], [4, 5, 6]], [0, 1], [[0], [1]], words), run, 1)
    return run
