# ruff: noqa: ARG002 (a callback has its arguments, whether it reads them or not)
"""Callbacks for tests: one that changes settings, one that notes what it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ppolm import Callback, EvaluationDone, RunControl, RunDone, StepDone

CHANGES = {1: {"kl_coef": 0.3}, 3: {"learning_rate": 5e-4, "value_learning_rate": 2e-3}, 4: {"kl_coef": 0.05}}
"""After which steps a callback changes what."""


def lines(run: Path, kind: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == kind]


class Steering(Callback):
    """Changes settings, and counts its calls in its state."""

    def __init__(self, changes: dict[int, dict[str, float]] = CHANGES, interrupt_after: int | None = None) -> None:
        self.changes, self.interrupt_after, self.calls = changes, interrupt_after, 0

    def on_step(self, step: StepDone, run: RunControl) -> None:
        self.calls += 1
        if step.step == self.interrupt_after:
            raise KeyboardInterrupt
        run.change(**self.changes.get(step.step, {}))

    def on_evaluation(self, evaluation: EvaluationDone, run: RunControl) -> None:
        if evaluation.step == 2:
            run.change(kl_coef=run.settings["kl_coef"] * 2)

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Any) -> None:
        self.calls = state["calls"]


class Watching:
    """Not a Callback by inheritance: its methods are enough."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.steps: list[StepDone] = []

    def on_start(self, run: RunControl) -> None:
        self.seen.append(("start", run.step))

    def on_step(self, step: StepDone, run: RunControl) -> None:
        self.seen.append(("step", run.step))
        self.steps.append(step)

    def on_evaluation(self, evaluation: EvaluationDone, run: RunControl) -> None:
        self.seen.append(("evaluation", evaluation.step, evaluation.status))

    def on_checkpoint(self, checkpoint: Path, run: RunControl) -> None:
        assert (checkpoint / "manifest.json").is_file()
        self.seen.append(("checkpoint", checkpoint.name))

    def on_end(self, end: RunDone, run: RunControl) -> None:
        self.seen.append(("end", end.stopped, end.why, (run.folder / "report" / "summary.md").is_file()))
