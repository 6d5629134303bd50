"""Runs beside each other, for ``ppolm runs A B``: settings that differ, and final figures with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppolm.cli.text_table import Column, shown, table_lines
from ppolm.config.yaml_io import read_yaml
from ppolm.errors import ConfigError
from ppolm.messages import brief
from ppolm.runs.metrics_tail import MetricsTail
from ppolm.runs.run_overview import METRICS, RunOverview, outcome, overview
from ppolm.studio.run_figures import differing_settings, final_figures, gains

LONGEST = 48
"""Letters of a setting that a cell shows."""
BOTH = ("avg_reward", "judge")
"""Figures shown for the first evaluation too: the gain is what matters of them."""


def compare(runs: Mapping[str, Path], width: int | None) -> tuple[dict[str, Any], list[str]]:
    """What is compared as plain values, and as lines of a table."""
    glances = {name: overview(path) for name, path in runs.items()}
    settings = differing_settings({name: settings_of(path) for name, path in runs.items()})
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


def settings_of(run: Path) -> dict[str, Any]:
    """The settings of a run; empty if its file cannot be read."""
    try:
        return read_yaml(run / "config.yaml")
    except ConfigError:
        return {}


def evaluations_of(run: Path) -> list[dict[str, Any]]:
    """The evaluations of a run, by step."""
    tail = MetricsTail(run / METRICS)
    tail.refresh()
    return tail.rows("eval")


def setting_rows(settings: Mapping[str, Mapping[str, Any]], runs: Sequence[str]) -> list[tuple[str, list[str]]]:
    """A row per setting."""
    return [
        (shown(str(name))[:LONGEST], [value_cell(values.get(run)) for run in runs])
        for name, values in settings.items()
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


def figure_rows(
    figures: Sequence[list[dict[str, Any]]], changes: Sequence[dict[str, dict[str, float]]]
) -> Iterator[tuple[str, list[str]]]:
    """A row per figure that any of the runs has."""
    by_name = [{one["name"]: one for one in found} for found in figures]
    labels = {one["name"]: one["label"] for found in figures for one in found}
    for name, label in labels.items():
        several = [found.get(name, {}) for found in by_name]
        if name in BOTH:
            yield f"{label}, first", [figure_cell(one.get("first")) for one in several]
        yield f"{label}", [figure_cell(one.get("best") or one.get("last")) for one in several]
        if name in BOTH:
            short = "reward" if name == "avg_reward" else name
            yield f"change of the {short}", [gain_cell(one.get(short)) for one in changes]


def figure_cell(figure: Mapping[str, float] | None) -> str:
    """0.598 [0.31, 0.89], or the number alone where its spread is not known."""
    if figure is None:
        return "-"
    between = f" [{figure['low']:.3g}, {figure['high']:.3g}]" if "low" in figure else ""
    return f"{figure['value']:.4g}{between}"


def gain_cell(gain: Mapping[str, float] | None) -> str:
    """+1.06 [+0.7, +1.42]."""
    return "-" if gain is None else f"{gain['mean']:+.3g} [{gain['low']:+.3g}, {gain['high']:+.3g}]"
