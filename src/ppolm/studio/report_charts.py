"""The charts of a report: which there are, and their lines as plain values. A script in the page draws them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ppolm.runs.metrics_tail import Row
from ppolm.runs.report_text import visible
from ppolm.runs.run_overview import number

MOST_POINTS = 2000
"""Steps of a line; of a longer run some are left out, evenly."""
WORDS = {"avg_reward": "reward", "ended_fraction": "share that ends", "response_length": "length"}
TOTAL = "seconds/all phases"
SPREAD = {"avg_reward": "reward_std", "judge": "judge_std"}


@dataclass(frozen=True)
class Chart:
    """One chart: metrics of training and of evaluations, on the left axis or on one of their own."""

    title: str
    note: str
    train: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    right_train: tuple[str, ...] = ()
    right_held: tuple[str, ...] = ()
    right: str = ""
    """Title of the right axis."""
    phases: bool = False
    """A line for each phase of a step."""


CHARTS = (
    Chart(
        "Reward",
        "Mean score of the responses, before normalisation and KL. The judge is never trained on.",
        *(("avg_reward",), ("avg_reward",), (), ("judge",), "judge"),
    ),
    Chart("KL to the reference", "Mean over responses of Σ log π − log π_ref, in nats.", ("kl",), ("kl",)),
    Chart(
        "Losses",
        "Per token, mean over the updates of a step.",
        *(("policy_loss",), (), ("value_loss",), (), "value loss"),
    ),
    Chart("Entropy", "Of the full softmax, per token. Near 0 is collapse.", ("entropy",), ("entropy",)),
    Chart("Clip fraction", "Share of tokens whose probability ratio is outside the clip range.", ("clip_fraction",)),
    Chart(
        "Value accuracy",
        "Explained variance of the values: 1 is perfect, below 0 is worse than a constant.",
        *(("value_accuracy",), ("value_accuracy",)),
    ),
    Chart("Response length", "Tokens, EOS included.", ("response_length",), ("response_length",)),
    Chart(
        "Seconds per phase",
        "Wall-clock time of each phase of a step; of several runs, of all phases together.",
        phases=True,
    ),
)


@dataclass(frozen=True)
class Series:
    """What the charts draw of a run."""

    name: str
    train: Sequence[Row]
    evaluations: Sequence[Row]
    best_step: int | None
    alarms: Sequence[tuple[float, str]]
    """Steps of evaluations that raised one, and which."""


def chart_data(runs: Sequence[Series]) -> list[dict[str, Any]]:
    """Every chart that has something to show, as JSON takes it."""
    several = len(runs) > 1
    found = []
    for chart in CHARTS:
        lines = [line for index, run in enumerate(runs) for line in _lines(chart, run, index if several else None)]
        if lines:
            right = chart.right if any(line["right"] for line in lines) else ""
            marks = [mark for run in runs for mark in _marks(run, several)]
            legend = not several and (chart.phases or bool(right))
            about = {"title": chart.title, "note": chart.note, "right": right, "legend": legend, "marks": marks}
            found.append({**about, "lines": lines})
    return found


def _lines(chart: Chart, run: Series, of_several: int | None) -> Iterator[dict[str, Any]]:
    """The lines of one run. Of several runs each has its colour; of one, each line."""
    train = _thinned(run.train)
    phases = dict.fromkeys(name for row in train for name in row if name.startswith("seconds/"))
    if chart.phases and of_several is not None:  # a line per phase and run would be too many
        train, phases = (
            [{**row, TOTAL: sum(filter(None, (number(row.get(name)) for name in phases)))} for row in train],
            {TOTAL: None},
        )
    wanted: list[tuple[str, bool, bool]] = [(name, False, False) for name in (phases if chart.phases else chart.train)]
    wanted += [(name, True, False) for name in chart.held] + [(name, False, True) for name in chart.right_train]
    wanted += [(name, True, True) for name in chart.right_held]
    index = 0
    for name, held, right in wanted:
        points = _points(run.evaluations if held else train, name)
        if not points["x"]:
            continue
        label = WORDS.get(name, name.removeprefix("seconds/").replace("_", " "))
        where = ", held out" if held and name != "judge" else ", training" if chart.held and not held else ""
        several = of_several is not None
        yield {
            **points,
            "name": plot_text(f"{run.name}: {label}{where}" if several else f"{label}{where}"),
            "color": of_several if several else index,
            "held": held,
            "right": right,
            "judge": name == "judge",
            **({} if several or not held else {"errors": _errors(run.evaluations, name)}),
        }
        index += 1


def _points(rows: Sequence[Row], name: str) -> dict[str, list[float | None]]:
    """Steps and numbers; a number that is missing among others is a gap."""
    values = [number(row.get(name)) for row in rows]
    if all(value is None for value in values):
        return {"x": [], "y": []}
    return {"x": [number(row["step"]) for row in rows], "y": values}


def _errors(rows: Sequence[Row], name: str) -> list[float | None] | None:
    """Two standard errors of each evaluation."""
    spread = SPREAD.get(name)
    if spread is None:
        return None
    found: list[float | None] = []
    for row in rows:
        deviation, prompts = number(row.get(spread)), number(row.get("num_prompts"))
        known = deviation is not None and prompts is not None and prompts > 1
        found.append(2 * deviation / math.sqrt(prompts - 1) if known else None)  # type: ignore[operator]  # both known
    return found if any(error is not None for error in found) else None


def _marks(run: Series, several: bool) -> Iterator[dict[str, Any]]:
    """Vertical lines: alarms, and for a single run its best step."""
    for step, status in run.alarms:
        yield {"x": step, "label": plot_text(f"{run.name}: {status}" if several else status), "kind": "bad"}
    if run.best_step is not None and not several:
        yield {"x": run.best_step, "label": "best", "kind": "good"}


def _thinned(rows: Sequence[Row]) -> Sequence[Row]:
    if len(rows) <= MOST_POINTS:
        return rows
    stride = (len(rows) - 1) / (MOST_POINTS - 1)
    return [rows[round(i * stride)] for i in range(MOST_POINTS)]


def plot_text(text: str) -> str:
    """Text for Plotly, which reads a few tags in what it is given."""
    return html.escape(visible(text, 60, keep=""), quote=False)
