"""The plots of a run's report: training smoothed over the raw points, held-out values with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppolm.runs.run_figures import figure
from ppolm.runs.run_overview import number

Rows = Sequence[dict[str, Any]]
SMOOTHED_FROM = 12
"""Steps from which a line is smoothed; fewer are drawn as they are."""
MEMORY = 0.1
"""Share of the run that the smoothed line remembers."""
TRAINING, HELD_OUT, JUDGE = "tab:blue", "tab:orange", "tab:green"


@dataclass(frozen=True)
class Plot:
    """A plot of a metric: file name, title, and the label of its axis, with the unit."""

    name: str
    title: str
    metrics: tuple[tuple[str, str], ...]
    """Metrics with the labels of their axes, one below the other."""


PLOTS = (
    Plot("reward", "Reward per response", (("avg_reward", "mean score"),)),
    Plot("judge", "Judge, which training never sees", (("judge", "mean score of the judge"),)),
    Plot("kl", "KL to the reference, per response", (("kl", "nats"),)),
    Plot("losses", "Losses", (("policy_loss", "policy loss per token"), ("value_loss", "value loss per token"))),
    Plot("entropy", "Entropy of the policy", (("entropy", "nats per token"),)),
    Plot("value_accuracy", "Value accuracy", (("value_accuracy", "explained variance of the returns"),)),
    Plot("length", "Response length", (("response_length", "tokens per response"),)),
    Plot("ended", "Responses that end by themselves", (("ended_fraction", "share of responses"),)),
)


def draw(path: Path, plot: Plot, train: Rows, evaluations: Rows) -> bool:
    """Write a plot as PNG; False if there is nothing to draw."""
    from matplotlib.figure import Figure  # no global state, no display
    from matplotlib.ticker import MaxNLocator

    picture = Figure(figsize=(7, 3.6 * len(plot.metrics) + 0.4), layout="constrained")
    picture.suptitle(plot.title)
    for axes, (metric, label) in zip(
        picture.subplots(len(plot.metrics), squeeze=False)[:, 0], plot.metrics, strict=True
    ):
        draw_training(axes, train, metric)
        draw_held_out(axes, evaluations, metric)
        axes.set_xlabel("PPO step")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        if metric == "ended_fraction":
            axes.set_ylim(-0.03, 1.03)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize="small")
    if not any(axes.has_data() for axes in picture.axes):
        return False
    picture.savefig(path, dpi=120)
    return True


def draw_training(axes: Any, train: Rows, metric: str) -> None:
    """The values of the steps, pale if a smoothed line can be drawn through them."""
    points = [(row["step"], value) for row in train if (value := number(row.get(metric))) is not None]
    if not points:
        return
    steps, values = zip(*points, strict=True)
    if len(points) < SMOOTHED_FROM:
        axes.plot(steps, values, ".-", color=TRAINING, markersize=4, label="training")
        return
    axes.plot(steps, values, ".", color=TRAINING, alpha=0.35, markersize=4, label="training")
    axes.plot(steps, smoothed(values), "-", color=TRAINING, label="training, smoothed")


def draw_held_out(axes: Any, evaluations: Rows, metric: str) -> None:
    """Evaluations, with a 95 % interval where the spread over prompts is known."""
    found = [one for row in evaluations if (one := figure(row, metric)) is not None]
    if not found:
        return
    steps, values = [one["step"] for one in found], [one["value"] for one in found]
    errors = [one["high"] - one["value"] if "high" in one else 0.0 for one in found]
    known, color = any(errors), JUDGE if metric == "judge" else HELD_OUT
    label = "held-out prompts, 95 % interval" if known else "held-out prompts"
    axes.errorbar(
        steps, values, errors if known else None, fmt="o--", markersize=4, capsize=3, color=color, label=label
    )


def smoothed(values: Sequence[float]) -> list[float]:
    """s_t = (1 − a) Σ a^i x_{t−i} / (1 − a^{t+1}): a moving average that forgets, and is right from the first value."""
    keeps = 1 - 1 / max(2.0, MEMORY * len(values))
    total, found = 0.0, []
    for count, value in enumerate(values, 1):
        total = keeps * total + (1 - keeps) * value
        found.append(total / (1 - keeps**count))
    return found
