"""The figure readiness.png: calibration, accuracies with the length baseline, scores, and trivial edits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ppolm.measures.intervals import Interval
from ppolm.readiness.markdown import measures
from ppolm.readiness.readiness_report import Readiness
from ppolm.readiness.readiness_verdict import EXPLOITABLE, SENSITIVE

COLOURS = ("tab:blue", "tab:orange")
LARGEST_EDIT = 3.0
"""Intervals are drawn up to this many standard deviations; with few prompts they may be far wider."""


def draw(path: Path, readiness: Readiness) -> None:
    """Draw one figure with four panels."""
    from matplotlib.figure import Figure  # no global state, no display

    figure = Figure(figsize=(13, 8.5), layout="constrained")
    figure.suptitle(f"Reward model: {readiness.verdict}", fontsize=14)
    panels = figure.subplots(2, 2)
    _calibration(panels[0, 0], readiness)
    _measures(panels[0, 1], readiness)
    _scores(panels[1, 0], readiness)
    _edits(panels[1, 1], readiness)
    figure.savefig(path, dpi=120)


def _calibration(axes: Any, readiness: Readiness) -> None:
    axes.set_title("Calibration")
    measured = readiness.calibration
    if measured is None:
        axes.text(0.5, 0.5, "no held-out pairs", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    axes.plot([0.5, 1], [0.5, 1], ":", color="grey", label="calibrated")
    filled = [bucket for bucket in measured.buckets if bucket.count]
    sure, right = [bucket.confidence for bucket in filled], [bucket.accuracy for bucket in filled]
    axes.plot(sure, right, "o-", color="tab:blue", label=f"model (ECE {measured.ece:.3f})")
    for bucket in filled:  # below its bucket, where labels cannot overlap
        text_position = ((bucket.low + bucket.high) / 2, 0.02)
        text = f"{bucket.count}\n{'pair' if bucket.count == 1 else 'pairs'}"
        axes.text(*text_position, text, ha="center", va="bottom", fontsize=8, transform=axes.get_xaxis_transform())
    axes.set_xlim(0.49, 1.01)
    axes.set_ylim(min([0.3, *(height for height in right if height is not None)]) - 0.15, 1.05)
    axes.set_xlabel("confidence of the model")
    axes.set_ylabel("share that is right")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left")


def drawn_bounds(measure: Interval, largest: float) -> tuple[float, float]:
    """The bounds of an interval, clipped to what is drawn; for a single prompt they are infinite."""
    return max(measure.low, min(-largest, measure.mean)), min(measure.high, max(largest, measure.mean))


def _measures(axes: Any, readiness: Readiness) -> None:
    axes.set_title("Agreement with people, 95 % intervals by prompt")
    found = [(name, measure) for name, measure in measures(readiness) if not name.startswith("gain")]
    for bar, (name, measure) in enumerate(found):
        colour = "tab:grey" if "baseline" in name else "tab:blue"
        axes.barh(bar, measure.mean, color=colour, alpha=0.6)
        axes.plot(drawn_bounds(measure, 1.0), [bar, bar], color="black", linewidth=1.5)
        chance = 0.0 if "correlation" in name else 0.5
        axes.plot([chance, chance], [bar - 0.4, bar + 0.4], "--", color="tab:red", linewidth=1.5)
    axes.set_yticks(range(len(found)), [f"{name}, n = {measure.rows}" for name, measure in found])
    axes.tick_params(axis="y", labelsize=8)
    axes.invert_yaxis()
    axes.set_xlim(min([0.0, *(drawn_bounds(measure, 1.0)[0] - 0.05 for _, measure in found)]), 1.02)
    axes.set_xlabel("dashed: chance")
    axes.grid(alpha=0.3, axis="x")


def _scores(axes: Any, readiness: Readiness) -> None:
    axes.set_title("Scores")
    edges = readiness.distribution.edges
    spreads = readiness.distribution.spreads
    # More than two overlapping histograms are unreadable; the page has the quantiles of all kinds.
    shown = [name for name in ("chosen", "rejected") if name in spreads] or list(spreads)[:2]
    for name, colour in zip(shown, COLOURS, strict=False):
        spread = spreads[name]
        shares = [count / spread.count for count in spread.histogram]
        axes.stairs(shares, edges, fill=True, alpha=0.3, color=colour, label=f"{name}, n = {spread.count}")
        axes.stairs(shares, edges, color=colour)
    axes.set_xlabel("score of the reward model, before normalisation")
    axes.set_ylabel("share of the answers")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def _edits(axes: Any, readiness: Readiness) -> None:
    axes.set_title("Trivial edits: what they do to the score")
    for limit, colour in ((SENSITIVE, "tab:orange"), (EXPLOITABLE, "tab:red")):
        axes.axvline(limit, color=colour, linestyle="--", linewidth=1)
    axes.axvline(0, color="black", linewidth=0.8)
    labels = []
    for bar, (name, edit) in enumerate(readiness.edits.items()):
        axes.barh(bar, edit.change.mean, color="tab:blue", alpha=0.6)
        axes.plot(drawn_bounds(edit.change, LARGEST_EDIT), [bar, bar], color="black", linewidth=1.5)
        flips = "" if edit.flipped is None else f"\n{edit.flipped:.0%} overtake"
        labels.append(f"{name}\n{edit.gained:.0%} gain{flips}")
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", labelsize=9)
    axes.invert_yaxis()
    ends = [end for edit in readiness.edits.values() for end in drawn_bounds(edit.change, LARGEST_EDIT)]
    axes.set_xlim(min(-0.6, *(end * 1.1 for end in ends)), max(0.6, *(end * 1.1 for end in ends)))
    axes.set_xlabel(f"mean change, in standard deviations\ndashed: weak ({SENSITIVE:g}), not ready ({EXPLOITABLE:g})")
    axes.grid(alpha=0.3, axis="x")
