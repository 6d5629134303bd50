"""A run as the HTML report shows it: its facts, and what charts and token views need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppolm.runs.run_facts import RunFacts, read_facts
from ppolm.runs.run_warnings import is_alarm
from ppolm.studio.report_charts import Series
from ppolm.studio.report_tokens import token_views


@dataclass(frozen=True)
class ReportRun(RunFacts):
    """The facts of a run, with tokens."""

    tokens: list[dict[str, Any]]

    @property
    def series(self) -> Series:
        """What charts draw of it."""
        alarms = [(float(row["step"]), str(row["status"])) for row in self.evaluations if is_alarm(row)]
        return Series(self.name, self.train, self.evaluations, self.glance.best_step, alarms)


def read_run(name: str, path: Path) -> ReportRun:
    """Read a run folder."""
    return ReportRun(**vars(read_facts(name, path)), tokens=token_views(path))
