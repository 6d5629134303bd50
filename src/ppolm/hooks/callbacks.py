"""The callbacks of a run: told on its first process, in their order; what they decide holds on all processes."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ppolm.components import Trainer
from ppolm.errors import CallbackError
from ppolm.hooks.callback import RunDone
from ppolm.hooks.check_callbacks import checked_callbacks, told
from ppolm.hooks.run_control import Change, RunControl, adjustable
from ppolm.messages import reason
from ppolm.ranks.ranks import TOLD
from ppolm.state import State
from ppolm.storage.stop_signals import Stopped

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decisions:
    """What the callbacks made of an event. A signal that interrupts one leaves none: the event is then repeated."""

    changes: tuple[Change, ...] = ()
    stop: str | None = None
    """Who stops the run, and why."""
    failure: str | None = None
    """Which callback failed, and how; it has changed nothing, and those after it were not told."""
    interrupted: bool = False
    """Whether a callback raised KeyboardInterrupt, which counts as Ctrl-C."""


class Callbacks:
    """Tells them what happens, and applies what they decide. Its state is theirs."""

    def __init__(self, callbacks: Sequence[Any], trainer: Trainer) -> None:
        self.trainer, self.ranks = trainer, trainer.models.setup.ranks
        self.by_name: dict[str, Any] = checked_callbacks(callbacks)
        self.stopped: str | None = None
        """Which callback stops the run, and why."""
        self.control = RunControl(trainer, Path(), 0)
        self._cause: BaseException | None = None

    def begin(self, folder: Path, total_steps: int) -> None:
        """Give them a handle of this run; raises if the state of one of them could not be saved."""
        self.control = RunControl(self.trainer, folder, total_steps)
        self.state_dict()

    def wants(self, method: str) -> bool:
        """Whether any of them is told of this."""
        return any(told(one, method) for one in self.by_name.values())

    def tell(self, method: str, *facts: Any) -> Decisions:
        """Call a method of every callback that has it."""
        return self.ranks.once(lambda: self._tell(method, facts)) if self.wants(method) else Decisions()

    def _tell(self, method: str, facts: Sequence[Any]) -> Decisions:
        changes: list[Change] = []
        stop: str | None = None
        for name, callback in self.by_name.items():
            if not told(callback, method):
                continue
            self.control.begin(method, {one.setting: one.new for one in changes})
            try:
                getattr(callback, method)(*facts, self.control)
            except Stopped:
                raise
            except KeyboardInterrupt:
                return Decisions(tuple(changes), stop, interrupted=True)
            except (Exception, SystemExit) as error:
                self._cause = error
                return Decisions(tuple(changes), stop, failure=_failure(name, method, error))
            asked, why = self.control.asked(name)
            changes += asked
            stop = stop or (f"{name}: {why}" if why else None)
        return Decisions(tuple(changes), stop)

    def apply(self, decisions: Decisions) -> None:
        """Make the changes, on every process."""
        parts = adjustable(self.trainer)
        for change in decisions.changes:
            parts[change.setting].adjust(change.setting, change.new)
        self.stopped = self.stopped or decisions.stop

    def raise_failure(self, decisions: Decisions) -> None:
        """Raise CallbackError if a callback has failed; the caller saves the run."""
        if decisions.failure is not None:
            error = CallbackError(decisions.failure)
            setattr(error, TOLD, not self.ranks.first)  # every process raises it: the first one says so
            raise error from self._cause

    def tell_end(self, end: RunDone) -> None:
        """Tell them on the first process that the run has ended. What fails now is only a warning: all is saved."""
        if self.ranks.first and self.wants("on_end"):
            with self.ranks.alone():
                decisions = self._tell("on_end", (end,))
            if decisions.failure is not None:
                log.warning("%s", decisions.failure)

    def state_dict(self) -> State:
        """The state of every callback by its name; empty for one without."""
        return {name: _state_of(name, callback) for name, callback in self.by_name.items()}

    def load_state_dict(self, state: State) -> None:
        """Restore them; one that is not given now is only warned of, since a run may go on without it."""
        for name, saved in state.items():
            if name not in self.by_name:
                log.warning("the run had the callback %s, which is not given now: it goes on without it", name)
            elif saved or hasattr(self.by_name[name], "load_state_dict"):
                _load(name, self.by_name[name], saved)


def _failure(name: str, what: str, error: BaseException) -> str:
    """One sentence: which callback, in which method, with what, where."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    said = reason(error)
    kind = type(error).__name__
    return f"The callback {name} failed in {what}{where}: {said if said == kind else f'{kind}: {said}'}"


def _state_of(name: str, callback: Any) -> Mapping[str, Any]:
    try:
        state = callback.state_dict() if hasattr(callback, "state_dict") else {}
        json.dumps(state, default=_tensor)
        return dict(state)
    except Exception as error:
        raise CallbackError(f"{_failure(name, 'state_dict', error)}. It must return what JSON can hold.") from error


def _load(name: str, callback: Any, state: Mapping[str, Any]) -> None:
    try:
        callback.load_state_dict(state)
    except Exception as error:
        raise CallbackError(f"{_failure(name, 'load_state_dict', error)}. Resume without it, or fix it.") from error


def _tensor(value: Any) -> Any:
    """Tensors are saved in a file of their own."""
    if isinstance(value, Tensor):
        return None
    raise TypeError(f"it contains a {type(value).__name__}")
