"""A stored step of a run, as ``ppolm tokens`` and ``ppolm explain`` are asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ppolm.cli.report_command import refuse_other_folder
from ppolm.errors import ConfigError, RunFolderError
from ppolm.messages import brief

if TYPE_CHECKING:
    from ppolm.studio.open_step import OpenStep


def stored_step(run: str, step: int | None) -> tuple[int, OpenStep]:
    """The number and the table of a step; the newest stored one unless a step is named."""
    from ppolm.studio.open_step import OpenSteps
    from ppolm.studio.token_tables import logged_steps

    refuse_other_folder(Path(run))
    known = logged_steps(Path(run))
    if step is None and not known:
        raise RunFolderError(
            f"{brief(run)} has no token table yet: they are written at step 1 and every table_every steps (0: never)."
        )
    number = known[-1] if step is None else step
    return number, OpenSteps().get(Path(run), number)


def check_place(name: str, value: int, count: int, of_what: str) -> None:
    """Raise unless a number counts one of ``count`` things from 0."""
    if not 0 <= value < count:
        raise ConfigError(f"{name} is {brief(value)}, but {of_what} has {count}: give 0 to {count - 1}.")
