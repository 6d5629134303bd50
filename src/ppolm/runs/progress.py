"""The progress of a run: one line that is updated on a terminal, one plain line per step elsewhere."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from tqdm import tqdm

SHOWN = {"avg_reward": "reward", "kl": "kl", "entropy": "entropy", "policy_loss": "policy", "value_loss": "value"}
ON_TERMINAL = ("avg_reward", "kl")
"""Metrics in the updated line, which has to fit in 80 columns."""
WIDEST = 88
"""Columns of the updated line, even on a wider terminal."""


class Progress:
    """Prints the metrics of each step as it ends, on standard error."""

    def __init__(self, total: int, done: int, silent: bool = False) -> None:
        """``silent``: another process of the same job prints."""
        self.total, self.done, self.silent, self.waits_since = total, done, silent, 0.0
        self.line = _Line(total, done, sys.stderr) if sys.stderr.isatty() and not silent else None
        self.above = _Above(self.line) if self.line is not None else None

    def step(self, metrics: Mapping[str, Any]) -> None:
        """One PPO step is over."""
        if self.line is None:
            self.say(f"step {metrics['step']}/{self.total}  {_numbers(metrics, SHOWN)}")
        else:
            self.line.step(_numbers(metrics, ON_TERMINAL))

    def say(self, line: str) -> None:
        """A line that stays."""
        if self.silent:
            return
        print(line, file=sys.stderr, flush=True)

    def evaluating(self) -> None:
        """An evaluation starts."""
        if self.line is not None:
            self.line.show("evaluating")

    def evaluated(self, line: str) -> None:
        """An evaluation has ended; ``line`` says what it found, and stays."""
        self.say(line)
        if self.line is not None:
            self.line.show("")

    def waiting(self, responses: int) -> None:
        """Show how many responses are waiting to be judged by people. Called repeatedly; 0 ends the wait."""
        if self.line is None:  # the reward has printed it
            return
        if not responses:
            self.waits_since = 0.0
            self.line.show("")
            return
        self.waits_since = self.waits_since or time.monotonic()
        waited = tqdm.format_interval(time.monotonic() - self.waits_since)
        self.line.show(f"waiting for people: {responses} to judge, {waited}")

    def close(self) -> None:
        """Leave the terminal tidy."""
        if self.above is not None:
            self.above.close()
        if self.line is not None:
            self.line.close()


def _numbers(metrics: Mapping[str, Any], names: Any) -> str:
    numbers = {SHOWN[name]: metrics.get(name, math.nan) for name in names}
    return "  ".join(f"{short} {value:.3g}" for short, value in numbers.items() if math.isfinite(value))


class _Line(tqdm):
    """The updated line: steps, a bar, then the latest metrics with the time left, or the current activity."""

    def __init__(self, total: int, done: int, file: TextIO) -> None:
        self.numbers, self.doing, self.began, self.first = "", "", time.monotonic(), done
        form = "step {n_fmt}/{total_fmt} |{bar}| {shown}"
        super().__init__(total=total, initial=done, bar_format=form, file=file, dynamic_ncols=True, mininterval=0)

    @property
    def format_dict(self) -> dict[str, Any]:
        """What the line is made of."""
        found = super().format_dict
        shown = self.doing or f"{self.numbers}{self.time_left()}" or "first step"
        return {**found, "ncols": min(found["ncols"] or WIDEST, WIDEST), "shown": shown}

    def time_left(self) -> str:
        """Estimated from the mean time per step so far, evaluations included."""
        taken = self.n - self.first
        if taken <= 0:
            return ""
        left = (time.monotonic() - self.began) / taken * (self.total - self.n)
        return f"  {tqdm.format_interval(left)} left" if self.n < self.total else "  done"

    def step(self, numbers: str) -> None:
        """A step is over."""
        self.numbers, self.doing = numbers, ""
        self.update()

    def show(self, doing: str) -> None:
        """Show an activity; an empty text shows the latest metrics again."""
        self.doing = doing
        self.refresh()


class _Above:
    """Makes everything that the process prints, warnings included, appear above the updated line."""

    def __init__(self, line: _Line) -> None:
        self.streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        self.stands_in = {name: _StandIn(stream, line) for name, stream in self.streams.items() if _is_terminal(stream)}
        self.handlers = [
            (handler, handler.stream)
            for handler in logging.getLogger().handlers
            if isinstance(handler, logging.StreamHandler) and handler.stream is self.streams["stderr"]
        ]
        for name, stand_in in self.stands_in.items():
            setattr(sys, name, stand_in)
        for handler, _ in self.handlers:
            handler.stream = sys.stderr

    def close(self) -> None:
        """Restore the streams, unless other code has replaced them in the meantime."""
        for name, stand_in in self.stands_in.items():
            stand_in.finish()
            if getattr(sys, name) is stand_in:
                setattr(sys, name, self.streams[name])
        for handler, stream in self.handlers:
            handler.stream = stream


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()


class _StandIn:
    """A stream that prints each line above the updated line once the line is complete."""

    def __init__(self, stream: TextIO, line: _Line) -> None:
        self.stream, self.line, self.begun = stream, line, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Print the complete lines; keep the rest."""
        if "\r" in text:  # another progress bar, which rewrites its own line
            self.stream.write(text)
            return len(text)
        whole, newline, self.begun = (self.begun + text).rpartition("\n")
        if newline:
            self.line.clear()
            self.stream.write(whole + newline)
            self.stream.flush()
            self.line.refresh()
        return len(text)

    def finish(self) -> None:
        """Print a line that was never completed."""
        if self.begun:
            self.write("\n")
