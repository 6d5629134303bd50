"""The handle of a callback: what it may know of a run, and what it may ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ppolm.components import Adjustable, Trainer
from ppolm.config import PPOConfig
from ppolm.config.setting import settings_of
from ppolm.errors import ConfigError
from ppolm.messages import brief

MOMENTS = ("on_step", "on_evaluation")
"""When settings may change: a resume repeats what was not yet saved of these, and so every change."""


@dataclass(frozen=True)
class Change:
    """A setting that has a new value from the next step on."""

    setting: str
    old: float
    new: float
    by: str
    """The callback that asked for it."""


class RunControl:
    """What a callback sees of a run; ``stop`` ends it, ``change`` gives settings new values from the next step on."""

    def __init__(self, trainer: Trainer, folder: Path, total_steps: int) -> None:
        self._trainer = trainer
        self.folder, self.total_steps = folder, total_steps
        self._moment = ""
        self._before: dict[str, float] = {}
        """The values in the next step as earlier callbacks have left them."""
        self._asked: dict[str, float] = {}
        self._why: str | None = None

    @property
    def config(self) -> PPOConfig:
        """The settings that the run was started with."""
        return self._trainer.config

    @property
    def step(self) -> int:
        """Steps taken so far."""
        return self._trainer.step

    @property
    def settings(self) -> Mapping[str, float]:
        """The settings that may change, with their values in the next step."""
        return MappingProxyType(self._before | self._asked)

    def stop(self, reason: str) -> None:
        """End the run after what is being done: it is evaluated, saved and reported as if it had been its last step."""
        if self._moment == "on_end":
            raise ConfigError("The run has ended, so there is nothing to stop.")
        if not isinstance(reason, str) or not reason.strip():
            raise ConfigError(f"The reason to stop is {brief(reason)}, expected a text that says why.")
        self._why = self._why or " ".join(reason.split())

    def change(self, **values: float) -> None:
        """Give settings new values from the next step on; all of them are checked before any is taken.

        ``settings`` names those that may change. The learning rates are peaks: a schedule multiplies them as before.
        """
        if self._moment not in MOMENTS:
            raise ConfigError(
                f"{self._moment or 'This'} cannot change settings: a resume could not repeat it. Change them in "
                "on_step or on_evaluation."
            )
        self._asked |= checked_values(self.config, self.settings, values)

    def begin(self, moment: str, pending: Mapping[str, float]) -> None:
        """A callback is about to be told; ``pending`` is what those before it have changed at this moment."""
        values = {name: part.adjustable()[name] for name, part in adjustable(self._trainer).items()}
        self._moment, self._before, self._asked, self._why = moment, {**values, **pending}, {}, None

    def asked(self, by: str) -> tuple[list[Change], str | None]:
        """What the callback has asked for: changes, and why it wants to stop."""
        asked = [Change(name, self._before[name], new, by) for name, new in self._asked.items()]
        return [one for one in asked if one.new != one.old], self._why


def adjustable(trainer: Trainer) -> dict[str, Adjustable]:
    """The settings that may change while a run is under way, each with the component that holds it."""
    parts = [part for part in trainer.components().values() if isinstance(part, Adjustable)]
    return {name: part for part in parts for name in part.adjustable()}


def checked_values(config: PPOConfig, current: Mapping[str, float], asked: Mapping[str, float]) -> dict[str, float]:
    """New values of settings that may change, checked by their declared ranges and together with the others."""
    for name in asked:
        if name not in current:
            raise ConfigError(f"{name} cannot change while a run is under way. These can: {', '.join(current)}.")
    declared = settings_of(type(config)).keys()
    values: dict[str, Any] = {name: value for name, value in {**current, **asked}.items() if name in declared}
    checked = dataclasses.replace(config, **values)  # or raises
    return {name: getattr(checked, name) if name in declared else float(value) for name, value in asked.items()}
