"""report/: plots and a Markdown summary, made from the files of the run folder."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppolm.storage.metrics_log import read_metrics

if TYPE_CHECKING:
    from ppolm.runs.results import TrainingResults

log = logging.getLogger(__name__)

Rows = Sequence[dict[str, Any]]
PLOTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "reward": ("Reward per response", ("avg_reward",)),
    "kl": ("KL to the reference, per response", ("kl",)),
    "losses": ("Losses, per token", ("policy_loss", "value_loss")),
    "entropy": ("Policy entropy, per token", ("entropy",)),
    "value_accuracy": ("Value accuracy (explained variance)", ("value_accuracy",)),
    "length": ("Response length, tokens", ("response_length",)),
}
JUDGE_TITLE = "Reward and judge on the held-out prompts"
SUMMARY = (
    *("avg_reward", "judge", "kl", "entropy", "value_accuracy", "response_length"),
    *("repetition", "distinct_2", "rouge_l"),
)


def write_report(results: TrainingResults) -> None:
    """Write report/*.png and report/summary.md. A failure is only a warning: the run itself is already saved."""
    run = results.run_dir
    try:
        folder = run / "report"
        folder.mkdir(exist_ok=True)
        train, evaluations = read_metrics(run), read_metrics(run, "eval")
        titles = {name: title for name, (title, _) in PLOTS.items()}
        plots = [name for name in PLOTS if _plot(folder / f"{name}.png", *PLOTS[name], train, evaluations)]
        if any("judge" in row for row in evaluations):
            _plot_judge(folder / "judge.png", JUDGE_TITLE, evaluations)
            titles["judge"] = JUDGE_TITLE
            plots.insert(1, "judge")
        pictures = [f"![{titles[name]}]({name}.png)" for name in plots]
        (folder / "summary.md").write_text(_summary(results, train, evaluations, pictures), encoding="utf-8")
    except Exception as error:
        log.warning("the report could not be written: %s", error)


def _plot(path: Path, title: str, names: Sequence[str], train: Rows, evaluations: Rows) -> bool:
    from matplotlib.figure import Figure  # no global state, no display
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 4 * len(names)), layout="constrained")
    figure.suptitle(title)
    drawn = 0
    for axes, name in zip(figure.subplots(len(names), squeeze=False)[:, 0], names, strict=True):
        for rows, label, style in ((train, "training", ".-"), (evaluations, "held-out", "o--")):
            points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
            if points:
                axes.plot(*zip(*points, strict=True), style, label=label, markersize=4)
                drawn += 1
        axes.set_xlabel("PPO step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(frameon=False)
    if not drawn:
        return False
    figure.savefig(path, dpi=120)
    return True


def _plot_judge(path: Path, title: str, evaluations: Rows) -> None:
    """Reward and judge in one plot, each on its own scale; error bars of the judge are two standard errors."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 4), layout="constrained")
    figure.suptitle(title)
    left = figure.subplots()
    right = left.twinx()
    steps = [row["step"] for row in evaluations]
    errors = [2 * row["judge_std"] / row["num_responses"] ** 0.5 for row in evaluations]
    left.plot(steps, [row["avg_reward"] for row in evaluations], "o--", color="tab:orange")
    right.errorbar(steps, [row["judge"] for row in evaluations], errors, fmt="s-", color="tab:blue", capsize=3)
    left.set_xlabel("PPO step")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_ylabel("reward that is trained on", color="tab:orange")
    right.set_ylabel("judge that is not", color="tab:blue")
    left.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def _summary(results: TrainingResults, train: Rows, evaluations: Rows, pictures: Sequence[str]) -> str:
    lines = [f"# {results.run_dir.name}", "", f"**Verdict: {results.verdict}** ({'; '.join(results.reasons)})", ""]
    lines += [f"{len(train)} PPO steps, {results.stopped}.", "", *(f"{doubt}\n" for doubt in results.doubts)]
    if evaluations and results.performance:
        best = next(row for row in evaluations if row["step"] == results.performance.best_step)
        columns = [("first", evaluations[0]), ("best", best), ("last", evaluations[-1])]
        heads = [f"{label} (step {row['step']:.0f})" for label, row in columns]
        lines += [
            f"Held-out prompts ({results.stands_on}):",
            "",
            f"| metric | {' | '.join(heads)} |",
            "|---|" + "---:|" * len(heads),
        ]
        for name in SUMMARY:
            if name in evaluations[0]:
                lines.append(f"| {name} | " + " | ".join(f"{row[name]:.4g}" for _, row in columns) + " |")
        lines.append("")
    return "\n".join([*lines, *pictures]) + "\n"
