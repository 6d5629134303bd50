"""report/: plots and a Markdown summary, made from the files of the run folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ppolm.runs.report_text import number_text, setting_text
from ppolm.runs.run_facts import RunFacts, minutes, read_facts
from ppolm.runs.run_plots import PLOTS, draw
from ppolm.runs.run_status import utc_now, utc_time
from ppolm.runs.run_warnings import warnings_of
from ppolm.storage.metrics_log import read_metrics

if TYPE_CHECKING:
    from ppolm.runs.results import TrainingResults

log = logging.getLogger(__name__)
SHOWN_SAMPLES = 3
PHASES = "seconds/"


def write_report(results: TrainingResults) -> None:
    """Write report/*.png and report/summary.md. A failure is only a warning: the run itself is already saved."""
    run = results.run_dir
    try:
        folder = run / "report"
        folder.mkdir(exist_ok=True)
        train, evaluations = read_metrics(run), read_metrics(run, "eval")
        drawn = [plot for plot in PLOTS if draw(folder / f"{plot.name}.png", plot, train, evaluations)]
        pictures = [f"![{plot.title}]({plot.name}.png)" for plot in drawn]
        text = "\n".join(summary(results, read_facts(run.name, run), pictures))
        (folder / "summary.md").write_text(text + "\n", encoding="utf-8")
    except Exception as error:
        log.warning("the report could not be written: %s", error)


def summary(results: TrainingResults, facts: RunFacts, pictures: Sequence[str]) -> Iterator[str]:
    """The lines of summary.md: warnings, verdict, figures, pictures, samples, settings, time."""
    yield from (f"# {facts.name}", "")
    for warning in (*results.doubts, *facts.alarms, *warnings_of(facts.train, facts.evaluations, facts.settings)):
        yield from (f"> **Warning.** {warning}", "")
    yield from (f"**Verdict: {results.verdict}** ({'; '.join(results.reasons)})", "")
    yield from (f"{results.steps} PPO steps, {results.ending}{_took(facts)}.", "")
    if facts.came_from:
        yield from (f"Started from the policy of {facts.came_from.replace('_', chr(92) + '_')}.", "")
    yield from _figures(results, facts)
    yield from (line for picture in pictures for line in (picture, ""))
    yield from _samples(facts)
    yield from _phases(facts)
    yield from _changes(facts)
    yield from _settings(facts)


def _took(facts: RunFacts) -> str:
    """When it was started, and how long it took."""
    started = utc_time(facts.status.started) if facts.status else None
    now = utc_time(facts.status.ended if facts.status and facts.status.ended else utc_now())
    if started is None or now is None:
        return ""
    return f", started {started:%Y-%m-%d %H:%M} UTC, {minutes((now - started).total_seconds())} in all"


def _figures(results: TrainingResults, facts: RunFacts) -> Iterator[str]:
    """First, best and last evaluation with intervals, and the change of reward and judge."""
    figures = facts.figures
    if not figures:
        return
    yield from (f"## On held-out prompts\n\n{results.stands_on}; in brackets 95 % intervals over prompts.", "")
    first = next(one for row in figures for one in [row["first"]] if one is not None)
    heads = {"first": f"first (step {first['step']:g})"}
    for when in ("best", "last"):
        found = next((row[when] for row in figures if row[when] is not None), None)
        if found is not None:
            heads[when] = f"{when} (step {found['step']:g})"
    yield f"| | {' | '.join(heads.values())} |"
    yield "|---|" + "---:|" * len(heads)
    for row in figures:
        yield f"| {row['label']} (`{row['name']}`) | {' | '.join(_figure(row[when]) for when in heads)} |"
    yield ""
    for name, gain in facts.gains.items():
        yield f"Change of the {name}, prompt by prompt: {gain['mean']:+.3g} [{gain['low']:+.3g}, {gain['high']:+.3g}]."
    yield ""


def _figure(one: dict[str, float] | None) -> str:
    if one is None:
        return "–"
    interval = f" [{one['low']:.3g}, {one['high']:.3g}]" if "low" in one else ""
    return f"{one['value']:.4g}{interval}"


def _samples(facts: RunFacts) -> Iterator[str]:
    """The first held-out prompts, not chosen ones, with their responses before and after."""
    if not facts.samples:
        return
    yield from ("## Samples: the first held-out prompts", "")
    for sample in facts.samples[:SHOWN_SAMPLES]:
        yield from _block(sample["prompt"])
        for answer in sample["answers"]:
            reward = "" if answer["reward"] is None else f", reward {answer['reward']:.3g}"
            yield from (f"Step {answer['step']}{reward}:", "", *_block(answer["response"]))


def _block(text: str) -> Iterator[str]:
    """Text as it is, whatever it contains: a fence that is longer than any in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    yield from (fence + "text", text, fence, "")


def _phases(facts: RunFacts) -> Iterator[str]:
    """Where the time of the steps went."""
    sums: dict[str, float] = {}
    for row in facts.train:
        for name, value in row.items():
            if name.startswith(PHASES) and isinstance(value, (int, float)):
                sums[name.removeprefix(PHASES)] = sums.get(name.removeprefix(PHASES), 0.0) + value
    total = sum(sums.values())
    if total > 0:
        parts = ", ".join(f"{name} {value / total:.0%}" for name, value in sums.items())
        yield from ("## Time", "", f"{minutes(total)} in {len(facts.train)} PPO steps: {parts}.", "")


def _changes(facts: RunFacts) -> Iterator[str]:
    """What callbacks have changed on the way."""
    if facts.changes:
        yield from ("## Settings that callbacks changed", "", "| after step | setting | from | to | by |")
        yield "|---:|---|---:|---:|---|"
        for row in facts.changes:
            old, new = (number_text(row[name]) for name in ("old", "new"))
            cells = (f"{row['step']:g}", f"`{row['setting']}`", old, new, row["by"])
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        yield ""


def _settings(facts: RunFacts) -> Iterator[str]:
    """What was set; everything else has its default."""
    changed: dict[str, dict[str, Any]] = facts.changed_settings
    if changed:
        yield from ("## Settings that are not the defaults", "", "| setting | here | default |", "|---|---|---|")
        for name, values in changed.items():
            cells = (setting_text(values[where]).replace("|", "\\|") for where in ("run", "default"))
            yield f"| `{name}` | {' | '.join(cells)} |"
        yield ""
