"""A logger as a callback: it hands everything to a thread, so that a tool that is slow or hangs never delays a run."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ppolm.hooks.callback import Callback, EvaluationDone, RunDone, StepDone
from ppolm.hooks.log_sink import SHOWN_SAMPLES, LoggedRun, LogSink, finite_numbers, without_secrets
from ppolm.hooks.run_control import RunControl
from ppolm.messages import reason

log = logging.getLogger(__name__)
PATIENCE = 30.0
"""Seconds that the end of a run waits for a tool."""
HURRY = 5.0
"""The same if a signal ended the run: the machine may be about to go down."""
BEHIND = 10_000
"""Events that may wait; a tool that is further behind is left out."""


class BackgroundLogger(Callback):
    """Sends a run to one tool. The first thing that fails is a warning, and from there the tool is left out."""

    def __init__(self, tool: str, begin: Callable[[LoggedRun], LogSink], *, repeats: bool = False) -> None:
        """``repeats``: the tool replaces steps that a resume repeats, so that they need not be left out."""
        self.tool, self._begin, self._repeats = tool, begin, repeats
        self._work: queue.Queue[Callable[[], object] | None] = queue.Queue(BEHIND)
        self._thread = threading.Thread(target=self._deliver, daemon=True, name=f"log to {tool}")
        self._failed = threading.Event()
        self._sink: LogSink | None = None
        self._sent: set[str] = set()
        self._list: Path | None = None

    def on_start(self, run: RunControl) -> None:
        """Begin the tool's run, or continue it."""
        logged = LoggedRun(run.folder, run.config.to_dict(), run.step, self.tool)
        self._thread.start()
        self._put(partial(self._open, logged))

    def on_step(self, step: StepDone, run: RunControl) -> None:  # noqa: ARG002
        """The numbers of a step."""
        self._put(partial(self._numbers, "train", step.step, finite_numbers(step.metrics)))

    def on_evaluation(self, evaluation: EvaluationDone, run: RunControl) -> None:  # noqa: ARG002
        """The numbers and the first samples of an evaluation."""
        rows = [dict(row) for row in evaluation.samples[:SHOWN_SAMPLES]]
        self._put(partial(self._numbers, "eval", evaluation.step, finite_numbers(evaluation.metrics), rows))

    def on_end(self, end: RunDone, run: RunControl) -> None:  # noqa: ARG002
        """The verdict; waits for the tool, but not for long."""
        if not self._thread.is_alive():
            return
        self._put(partial(self._close, end))
        self._put(None)
        seconds = HURRY if end.stopped == "interrupted" else PATIENCE
        self._thread.join(seconds)
        if self._thread.is_alive() and not self._failed.is_set():
            self._failed.set()
            log.warning("%s has not taken everything within %.0f s; metrics.jsonl has it all", self.tool, seconds)

    def _put(self, work: Callable[[], object] | None) -> None:
        try:
            self._work.put_nowait(work)
        except queue.Full:
            self._give_up(f"it is {BEHIND} events behind")

    def _deliver(self) -> None:
        """The thread: one event after the other."""
        while (work := self._work.get()) is not None:
            if self._failed.is_set():
                continue
            try:
                work()
            except (Exception, SystemExit) as error:
                self._give_up(f"{type(error).__name__}: {without_secrets(reason(error))}")

    def _give_up(self, why: str) -> None:
        if not self._failed.is_set():
            self._failed.set()
            log.warning("%s is left out from here, and the run goes on: %s", self.tool, why)

    def _open(self, run: LoggedRun) -> None:
        self._list = run.folder / "loggers" / f"{self.tool}.sent"
        if run.recall() and not self._repeats and self._list.exists():
            self._sent = set(self._list.read_text(encoding="utf-8").split("\n"))
        self._sink = self._begin(run)

    def _numbers(self, kind: str, step: int, numbers: dict[str, float], samples: list[dict[str, object]] = []) -> None:  # noqa: B006
        """Send a step or evaluation, unless the tool has had it before a resume: it would have it twice."""
        mark = f"{kind} {step}"
        if mark in self._sent or self._sink is None:
            return
        self._sink.numbers(kind, step, numbers)
        if samples:
            self._sink.samples(step, samples)
        if self._list is not None and not self._repeats:
            self._list.parent.mkdir(exist_ok=True)
            with self._list.open("a", encoding="utf-8") as file:
                file.write(f"{mark}\n")

    def _close(self, end: RunDone) -> None:
        if self._sink is not None:
            self._sink.close(end)
