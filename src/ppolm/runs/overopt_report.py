"""The over-optimisation plot: reward and judge against KL, one curve per kl_coef (after Gao et al. 2022)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ALARMS = ("over-optimised", "collapsed")


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run of a sweep."""

    kl_coef: float
    evaluations: list[dict[str, Any]]

    @property
    def peak(self) -> dict[str, Any]:
        """Where the judge was highest."""
        return max(self.evaluations, key=lambda row: float(row["judge"]))

    @property
    def alarm(self) -> dict[str, Any] | None:
        """The first evaluation at which the Evaluator raised an alarm."""
        return next((row for row in self.evaluations if row["status"] in ALARMS), None)


def write_overopt_report(folder: Path, curves: Sequence[Curve]) -> str:
    """Write overopt.png, overopt.md and overopt.json; returns the table and where the picture is."""
    _plot(folder / "overopt.png", curves)
    rows = [{"kl_coef": curve.kl_coef, "evaluations": curve.evaluations} for curve in curves]
    (folder / "overopt.json").write_text(json.dumps(rows, indent=1))
    text = overopt_table(curves)
    (folder / "overopt.md").write_text(f"# Reward and judge against KL\n\n{text}\n\n![curves](overopt.png)\n")
    return f"{text}\n\nPicture: {folder / 'overopt.png'}"


def overopt_table(curves: Sequence[Curve]) -> str:
    """Start, peak, alarm and end of each curve as a Markdown table; cells show judge (reward, KL)."""

    def cell(row: dict[str, Any] | None) -> str:
        if row is None:
            return "none"
        return f"step {row['step']:.0f}: {row['judge']:.3f} ({row['avg_reward']:.2f}, {row['kl']:.1f})"

    lines = [
        "Judge on held-out prompts, in brackets the reward that was trained on and the KL per response.",
        "",
        "| kl_coef | start | judge's peak | first alarm | end |",
        "|---:|---|---|---|---|",
    ]
    for curve in curves:
        alarm = cell(curve.alarm) + (f", {curve.alarm['status']}" if curve.alarm else "")
        cells = [cell(curve.evaluations[0]), cell(curve.peak), alarm, cell(curve.evaluations[-1])]
        lines.append(f"| {curve.kl_coef:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _plot(path: Path, curves: Sequence[Curve]) -> None:
    from matplotlib.figure import Figure  # no global state, no display

    figure = Figure(figsize=(7, 8), layout="constrained")
    figure.suptitle("What is trained on, and what is meant")
    panels = (("avg_reward", "reward that is trained on"), ("judge", "judge that is not"))
    for axes, (name, label) in zip(figure.subplots(2, sharex=True), panels, strict=True):
        for curve in curves:
            kl = [max(row["kl"], 0.0) for row in curve.evaluations]  # a noisy estimate, which may be below 0
            values = [row[name] for row in curve.evaluations]
            (line,) = axes.plot(kl, values, ".-", label=f"kl_coef {curve.kl_coef:g}")
            if curve.alarm:
                place = (max(curve.alarm["kl"], 0.0), curve.alarm[name])
                axes.plot(*place, "x", color=line.get_color(), markersize=11, mew=2.5)
        axes.axhline(curves[0].evaluations[0][name], color="grey", linestyle=":", linewidth=1)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    axes.plot([], [], "x", color="black", markersize=9, mew=2.5, linestyle="none", label="first alarm")
    axes.plot([], [], ":", color="grey", label="before training")
    axes.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0.0)), np.square))  # as Gao et al. draw it
    axes.set_xlim(left=0.0)
    axes.set_xlabel("KL to the reference, nats per response (square-root scale)")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
