"""A ppolm command in its own process that can be killed; cheap to start, as a fork of a process that has torch."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

BEGUN, DONE = b"S", b"D"
"""Marks that a training run writes to ``steps`` when a step begins and when it is done."""


LARGE = (
    *("matplotlib.figure", "ppolm.readiness", "ppolm.supervised", "ppolm.ppo_trainer"),
    *("ppolm.cli.train_command", "ppolm.cli.sft_command", "ppolm.cli.reward_command"),
)
"""Modules that are imported once, before the first fork."""


@dataclass
class Child:
    """A running command."""

    pid: int
    log: Path
    steps: Path

    def count(self, mark: bytes) -> int:
        """Number of steps that have begun, or that are done."""
        return self.steps.read_bytes().count(mark) if self.steps.exists() else 0

    def send(self, *signals: int) -> None:
        """Send signals in order."""
        for number in signals:
            os.kill(self.pid, number)

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit status (negative: the signal that killed it), or None if it runs longer than the given time."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            found, status = os.waitpid(self.pid, 0 if end is None else os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            if end is not None and time.monotonic() >= end:
                return None
            time.sleep(0.002)

    @property
    def said(self) -> str:
        """Its output so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def start(arguments: Sequence[str], place: Path, prepare: Callable[[], object] = lambda: None) -> Child:
    """Run ``ppolm`` with these arguments in a fork of this process; ``prepare`` is called in it first.

    Its output and its steps are recorded in files beside ``place``.
    """
    for large in LARGE:
        import_module(large)
    assert threading.active_count() == 1 or "pytest" in sys.modules, "copies of a process with threads may hang"
    child = Child(0, place.with_name(f"{place.name}.log"), place.with_name(f"{place.name}.steps"))
    child.log.unlink(missing_ok=True)
    child.steps.unlink(missing_ok=True)
    child.pid = os.fork()
    if child.pid == 0:
        status = 70
        try:
            _run(arguments, child, prepare)
        except SystemExit as end:
            status = int(end.code or 0) if not isinstance(end.code, str) else 70
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return child


def _run(arguments: Sequence[str], child: Child, prepare: Callable[[], object]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs may have it ignored
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    output = os.open(child.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    import torch
    from matplotlib.figure import Figure

    from ppolm.cli.main import main
    from ppolm.ppo_trainer import PPOTrainer
    from ppolm.supervised.supervised_trainer import SupervisedTrainer

    torch.set_num_threads(1)
    # Plotting takes half the time of so small a run, and nothing is lost if it is interrupted.
    Figure.savefig = lambda _, path, **__: Path(path).touch()  # type: ignore[method-assign]
    marks = os.open(child.steps, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for owner, name in ((PPOTrainer, "ppo_step"), (SupervisedTrainer, "_update")):
        setattr(owner, name, _marked(getattr(owner, name), marks))
    prepare()
    main(arguments)


def _marked(step: Callable[..., Any], marks: int) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        os.write(marks, BEGUN)
        answer = step(*arguments)
        os.write(marks, DONE)
        return answer

    return noted
