"""Run folders that look like real ones, without any training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppolm.runs.run_status import RunStatus

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\x1b[31mred\u202eevil\x00 & \"quoted\" 'too'"
"""Markup, a terminal's colours, a right-to-left override, a zero byte."""


def training_row(step: int, **columns: Any) -> dict[str, Any]:
    """The metrics of a step, about as many as a real one has."""
    names = ("policy_loss", "value_loss", "entropy", "ratio", "clip_fraction", "approx_kl", "value_accuracy")
    more = dict.fromkeys(names, 0.1 + 0.01 * step)
    seconds = {f"seconds/{phase}": 0.5 for phase in ("generate", "reward", "value", "train_value", "train_policy")}
    shown = {"avg_reward": step / 10, "reward_std": 0.5, "kl": 0.05 * step, "response_length": 20.0}
    return {"kind": "train", "step": step, **shown, **more, **seconds, **columns}


def evaluation_row(step: int, **columns: Any) -> dict[str, Any]:
    """The metrics of an evaluation."""
    spread = {"reward_std": 0.5, "judge_std": 0.2, "num_responses": 32, "num_prompts": 32}
    shown = {"avg_reward": step / 10, "judge": 0.3 + 0.01 * step, "kl": 0.05 * step, "entropy": 0.3, **spread}
    status = {"status": "rising" if step else "baseline", "reasons": ["the best so far"]}
    return {"kind": "eval", "step": step, **shown, "response_length": 20.0, **status, **columns}


def make_run(
    folder: Path,
    steps: int = 3,
    settings: Mapping[str, Any] | None = None,
    status: RunStatus | None = None,
    **columns: Any,
) -> Path:
    """A run folder with metrics, evaluations before and after, and a status."""
    folder.mkdir(parents=True)
    values = {"model_name": "embedded", "learning_rate": 1e-4, "run_name": folder.name, **(settings or {})}
    (folder / "config.yaml").write_text(
        "".join(f"{json.dumps(name)}: {json.dumps(value)}\n" for name, value in values.items())
    )
    rows = [evaluation_row(0), *(training_row(step, **columns) for step in range(1, steps + 1)), evaluation_row(steps)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "best").mkdir()
    (folder / "best" / "best.json").write_text(json.dumps({"step": steps, "avg_reward": steps / 10}))
    ended = status or RunStatus("finished", steps, verdict="improved", reasons=("reward rose", "so did the judge"))
    (folder / "status.json").write_text(json.dumps(ended.to_dict()))
    return folder
