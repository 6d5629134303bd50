"""Runs beside each other, for ``ppolm runs A B``: settings that differ, and final figures with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppolm.cli.text_table import Column, shown, table_lines
from ppolm.messages import brief
from ppolm.runs.metrics_tail import MetricsTail
from ppolm.runs.run_figures import differing_settings, final_figures, gains
from ppolm.runs.run_overview import METRICS, RunOverview, outcome, overview, read_settings
from ppolm.studio.figure_rows import figure_rows

LONGEST = 48
"""Letters of a setting that a cell shows."""


def compare(runs: Mapping[str, Path], width: int | None) -> tuple[dict[str, Any], list[str]]:
    """What is compared as plain values, and as lines of a table."""
    glances = {name: overview(path) for name, path in runs.items()}
    settings = differing_settings({name: read_settings(path) for name, path in runs.items()})
    evaluations = {name: evaluations_of(path) for name, path in runs.items()}
    best = {name: glances[name].best_step for name in runs}
    figures = {name: final_figures(evaluations[name], best[name]) for name in runs}
    changes = {name: gains(evaluations[name], best[name]) for name in runs}
    values = {
        "runs": {name: one.to_dict() for name, one in glances.items()},
        "settings": settings,
        "figures": figures,
        "gains": changes,
    }
    figure_lines = [*glance_rows(list(glances.values())), *figure_rows(list(figures.values()), list(changes.values()))]
    settings_table = beside(setting_rows(settings, list(runs)), list(runs), width) if settings else ["none"]
    heading = "Final figures on held-out prompts, of the best policy, with 95 % intervals:"
    lines = ["Settings that differ:", *settings_table, "", heading, *beside(figure_lines, list(runs), width)]
    return values, lines


def beside(rows: Sequence[tuple[str, list[str]]], runs: Sequence[str], width: int | None) -> list[str]:
    """A table with a column per run."""
    labels = Column("", [label for label, _ in rows], least=12)
    columns = [Column(shown(name), [cells[i] for _, cells in rows], least=10) for i, name in enumerate(runs)]
    return table_lines([labels, *columns], width)


def evaluations_of(run: Path) -> list[dict[str, Any]]:
    """The evaluations of a run, by step."""
    tail = MetricsTail(run / METRICS)
    tail.refresh()
    return tail.rows("eval")


def setting_rows(settings: Mapping[str, Mapping[str, Any]], runs: Sequence[str]) -> list[tuple[str, list[str]]]:
    """A row per setting."""
    return [
        (shown(str(name))[:LONGEST], [value_cell(values.get(run)) for run in runs]) for name, values in settings.items()
    ]


def value_cell(value: Any) -> str:
    """A setting as its file writes it."""
    if value is None or isinstance(value, bool):
        return {None: "-", True: "true", False: "false"}[value]
    return shown(value)[:LONGEST] if isinstance(value, str) else brief(value, LONGEST)


def glance_rows(glances: Sequence[RunOverview]) -> Iterator[tuple[str, list[str]]]:
    """What a run is and how it ended."""
    yield "verdict", [shown(outcome(one))[:LONGEST] or "-" for one in glances]
    yield "state", [one.state for one in glances]
    yield "steps", [f"{one.step}" for one in glances]
    yield "best step", ["-" if one.best_step is None else f"{one.best_step}" for one in glances]
