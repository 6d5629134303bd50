"""Trackio: its local database (``trackio show``), or the Space that its own variables name."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from ppolm.hooks.callback import RunDone
from ppolm.hooks.log_sink import PROJECT, LoggedRun, ending_texts, sample_columns


class TrackioSink:
    """A run of Trackio with the name that the run folder remembers, so that a resume continues it."""

    def __init__(self, run: LoggedRun) -> None:
        with redirect_stdout(sys.stderr):  # it tells where it logs; our standard output is the result
            import trackio

            self._trackio: Any = trackio
            known = run.recall().get("name")
            name = known or self._free(run.name)
            self._run: Any = trackio.init(
                project=PROJECT,
                name=name,
                config=dict(run.settings),
                resume="allow" if known else "never",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        run.note(name=self._run.name)

    def _free(self, name: str) -> str:
        """A name that no run of the project has: Trackio continues runs by their names."""
        try:
            taken = {str(run.name) for run in self._trackio.Api().runs(PROJECT)}
        except ValueError:  # the project does not exist yet
            return name
        return f"{name}-{uuid.uuid4().hex[:4]}" if name in taken else name

    def numbers(self, kind: str, step: int, numbers: Mapping[str, float]) -> None:
        """All of them at their step."""
        self._run.log({f"{kind}/{name}": value for name, value in numbers.items()}, step=step)

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """A table."""
        columns = sample_columns(rows)
        cells = [list(row) for row in zip(*columns.values(), strict=True)]
        self._run.log({"samples": self._trackio.Table(columns=list(columns), data=cells)}, step=step)

    def close(self, end: RunDone) -> None:
        """The verdict, as texts of the last step."""
        self._run.log(dict(ending_texts(end)), step=end.step)
        with redirect_stdout(sys.stderr):
            self._run.finish()
