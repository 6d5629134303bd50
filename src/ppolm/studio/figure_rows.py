"""Final figures of several runs as the rows of a table, in a terminal or on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BOTH = ("avg_reward", "judge")
"""Figures shown for the first evaluation too: the gain is what matters of them."""


def figure_rows(
    figures: Sequence[list[dict[str, Any]]], changes: Sequence[Mapping[str, Mapping[str, float]]]
) -> Iterator[tuple[str, list[str]]]:
    """A label and a cell per run, for each figure that any of them has; of the best evaluation, else of the last."""
    by_name = [{one["name"]: one for one in found} for found in figures]
    labels = {one["name"]: one["label"] for found in figures for one in found}
    for name, label in labels.items():
        several = [found.get(name, {}) for found in by_name]
        if name in BOTH:
            yield f"{label}, first", [figure_cell(one.get("first")) for one in several]
        yield label, [figure_cell(one.get("best") or one.get("last")) for one in several]
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
