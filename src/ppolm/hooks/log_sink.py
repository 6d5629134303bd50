"""What a tool for experiments has to do to be logged to, and what it is told of the run."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ppolm.config.secrets import SECRET_NAME
from ppolm.hooks.callback import RunDone
from ppolm.storage.atomic import write_file

PROJECT = "ppolm"
SHOWN_SAMPLES = 16
"""Samples of an evaluation in a tool: the first ones."""
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
SHORTEST_SECRET = 6


@dataclass(frozen=True)
class LoggedRun:
    """The run as a tool shows it."""

    folder: Path
    settings: Mapping[str, Any]
    """As config.yaml has them: keys are named there as environment variables."""
    step: int
    """Steps taken before this start; above 0 after a resume."""
    tool: str

    @property
    def name(self) -> str:
        """What it is called."""
        return self.folder.name

    def recall(self) -> dict[str, str]:
        """What the tool noted of its own run at an earlier start; empty for a new one."""
        try:
            found = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}

    def note(self, **facts: str) -> None:
        """Note them for the next start: names and ids only, never an address or a key."""
        self._note.parent.mkdir(exist_ok=True)
        write_file(self._note, lambda part: part.write_text(json.dumps(facts), encoding="utf-8"))

    @property
    def _note(self) -> Path:
        return self.folder / "loggers" / f"{self.tool}.json"


class LogSink(Protocol):
    """A tool, from its start to its end; called in one thread of its own, one call at a time."""

    def numbers(self, kind: str, step: int, numbers: Mapping[str, float]) -> None:
        """The numbers of a step (``train``) or an evaluation (``eval``)."""

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """The first samples of an evaluation."""

    def close(self, end: RunDone) -> None:
        """The verdict, and whatever the tool has not sent yet."""


def finite_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What tools can draw of a line of metrics.jsonl: finite numbers, true and false as 1 and 0, without the step."""
    return {
        name: value + 0
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and math.isfinite(value) and name != "step"
    }


def sample_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str | float]]:
    """Samples as a table of prompts, responses and rewards."""
    return {name: [_cell(row.get(name)) for row in rows] for name in ("prompt", "response", "reward")}


def _cell(value: Any) -> str | float:
    return value if isinstance(value, (str, float)) else json.dumps(value, ensure_ascii=False, default=str)


def ending_texts(end: RunDone) -> dict[str, str]:
    """How the run ended, as texts."""
    found = {"verdict": end.verdict, "reasons": "; ".join(end.reasons), "stopped": end.stopped, "why": end.why}
    return {name: without_secrets(text) for name, text in found.items() if text}


def without_secrets(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Text of a library's error without the values of variables that hold keys, and without users in addresses."""
    for name, value in environment.items():
        if len(value) >= SHORTEST_SECRET and SECRET_NAME.search(name):
            text = text.replace(value, f"${name}")
    return CREDENTIALS.sub("...", text)
