"""The responses to held-out prompts, from a run's samples.jsonl: texts and rewards, evaluation by evaluation.

The file grows while the run goes on, and may be long: it is read on from where the last look ended, and only the place
of each sample is kept; its text is read when somebody looks at it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

FILE = "samples.jsonl"
LONGEST_LINE = 4 << 20
"""Longer lines are skipped."""
CHUNK = 16 << 20


@dataclass(frozen=True)
class Place:
    """Position of a sample in the file, and its reward for lists."""

    offset: int
    size: int
    reward: float | None


class HeldOutSamples:
    """The samples of kind "eval" of one run, by step and number."""

    def __init__(self, run: Path) -> None:
        self.path = run / FILE
        self._lock = Lock()
        self._forget(-1)

    def _forget(self, inode: int) -> None:
        self._offset, self._inode = 0, inode
        self._places: dict[int, dict[int, Place]] = {}

    def steps(self) -> list[int]:
        """The steps with an evaluation on held-out prompts."""
        with self._lock:
            self._read_on()
            return sorted(self._places)

    def rewards(self, step: int) -> dict[int, float | None]:
        """The reward of each held-out sample of a step, by its number."""
        with self._lock:
            self._read_on()
            return {number: place.reward for number, place in sorted(self._places.get(step, {}).items())}

    def sample(self, step: int, number: int) -> dict[str, Any] | None:
        """Prompt, response and reward of a sample; None if there is none."""
        with self._lock:
            self._read_on()
            place = self._places.get(step, {}).get(number)
        if place is None:
            return None
        try:
            with self.path.open("rb") as file:
                file.seek(place.offset)
                row = _parse(file.read(place.size))
        except OSError:
            return None
        return row if row is not None and row["step"] == step else None

    def _read_on(self) -> None:
        """Index new samples. A file that was replaced is read again, as after a resume."""
        try:
            with self.path.open("rb") as file:
                found = self.path.stat()
                if found.st_ino != self._inode or found.st_size < self._offset:
                    self._forget(found.st_ino)
                file.seek(self._offset)
                while chunk := file.read(CHUNK):
                    whole = chunk[: chunk.rfind(b"\n") + 1]
                    if not whole:  # the rest is still being written, or is no line of ours
                        if len(chunk) < CHUNK:
                            return
                        whole = chunk
                    self._note(whole)
                    self._offset += len(whole)
                    file.seek(self._offset)
        except OSError:
            return

    def _note(self, lines: bytes) -> None:
        offset = self._offset
        for line in lines.split(b"\n"):
            row = _parse(line)
            if row is not None:
                reward = _total(row.get("reward"))
                self._places.setdefault(row["step"], {})[row["sequence"]] = Place(offset, len(line), reward)
            offset += len(line) + 1


def _parse(line: bytes) -> dict[str, Any] | None:
    """A line about a held-out sample; None for any other, or one that was cut off or damaged."""
    if b'"eval"' not in line[:64] or len(line) > LONGEST_LINE:
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(row, dict) and row.get("kind") == "eval"
    numbered = whole and all(type(row.get(name)) is int for name in ("step", "sequence"))
    return row if numbered else None


def _total(reward: Any) -> float | None:
    """The reward of a sample as one number: that of its tokens added up."""
    if isinstance(reward, list) and all(type(one) in (int, float) for one in reward):
        return float(sum(reward))
    return float(reward) if type(reward) in (int, float) else None
