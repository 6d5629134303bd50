"""The comparison as a plot: ratios to the peer by case, and how the time of a step grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

OURS, PEER, GOAL = "#1f6f8b", "#b0b0b0", "#d1495b"


def draw(results: dict[str, Any], path: Path) -> None:
    """Write a PNG."""
    cases = [row for row in results.get("cases", []) if "ratio" in row]
    curves = results.get("growth", [])
    columns = max(len(curves), 1)
    figure = pyplot.figure(figsize=(max(8, 3.2 * columns), 4 + (3 if curves else 0)), layout="constrained")
    grid = figure.add_gridspec(2 if curves else 1, columns, height_ratios=[4, 3] if curves else None)
    if cases:
        _ratios(figure.add_subplot(grid[0, :]), cases)
    for number, curve in enumerate(curves):
        _curve(figure.add_subplot(grid[1, number]), curve, first=number == 0)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _ratios(axes: Axes, cases: list[dict[str, Any]]) -> None:
    names, ratios = [row["case"] for row in cases], [row["ratio"]["total"] for row in cases]
    places = range(len(cases))
    bars = axes.bar(places, ratios, color=OURS, width=0.6)
    axes.bar_label(bars, [f"{ratio:.1f}x" for ratio in ratios], padding=2)
    axes.hlines([row["target"] for row in cases], [p - 0.4 for p in places], [p + 0.4 for p in places], color=GOAL)
    axes.axhline(1, color=PEER, linestyle="--")
    axes.set_xticks(list(places), names)
    axes.set_ylabel("times as fast as TRL")
    axes.set_title("A PPO step beside TRL's (dashed: the same speed; red: the goal)")
    axes.spines[["top", "right"]].set_visible(False)


def _curve(axes: Axes, curve: dict[str, Any], first: bool) -> None:
    for side, colour in (("peer", PEER), ("ours", OURS)):
        points = [(one["value"], one[side]) for one in curve["points"] if one.get(side) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", color=colour, label={"peer": "TRL"}.get(side, "ppolm"))
    axes.set_xscale("log", base=2)
    values = [one["value"] for one in curve["points"]]
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(curve["name"])
    axes.spines[["top", "right"]].set_visible(False)
    if first:
        axes.set_ylabel("seconds a step")
        axes.legend(frameon=False)
