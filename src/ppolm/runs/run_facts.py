"""What a report says of one run, read from its folder; whatever is missing or damaged is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppolm.config import PPOConfig
from ppolm.errors import RunFolderError
from ppolm.runs.held_out_samples import HeldOutSamples
from ppolm.runs.metrics_tail import MetricsTail, Row, parse_row
from ppolm.runs.report_text import NAME, RESPONSE, SENTENCE, content_text, visible
from ppolm.runs.run_figures import differing_settings, final_figures, gains
from ppolm.runs.run_overview import METRICS, RunOverview, number, outcome, overview, read_settings
from ppolm.runs.run_status import RunStatus, read_status, utc_time
from ppolm.runs.run_warnings import is_alarm
from ppolm.storage.starting_point import noted_ancestors
from ppolm.storage.stored_run import run_of

COUNTED = {
    "skipped_updates": "updates were skipped: their loss or gradient was not finite",
    "reward_failures": "scores failed and were replaced by default_reward",
}
SAMPLES = 6
GOOD, BAD = ("improved",), ("collapsed", "over-optimised", "suspect")


@dataclass(frozen=True)
class RunFacts:
    """A run as a report shows it."""

    name: str
    glance: RunOverview
    status: RunStatus | None
    settings: dict[str, Any]
    train: Sequence[Row]
    evaluations: Sequence[Row]
    samples: list[dict[str, Any]]
    changes: Sequence[Row]
    """Settings that callbacks have changed, in order."""
    came_from: str
    """The runs that this one came from, the nearest first; empty if it started from its reference."""

    @property
    def figures(self) -> list[dict[str, Any]]:
        """First, best and last evaluation."""
        return final_figures(self.evaluations, self.glance.best_step)

    @property
    def gains(self) -> dict[str, dict[str, float]]:
        """Change of reward and judge, with intervals."""
        return gains(self.evaluations, self.glance.best_step)

    @property
    def verdict(self) -> dict[str, Any]:
        """In a word, whether that is good, and why."""
        word = self.glance.verdict or self.glance.state
        broken = self.glance.state == "stopped" and not self.was_stopped
        kind = "good" if word in GOOD else "bad" if word in BAD or broken else "warn"
        reasons = self.status.reasons if self.status else ()
        return {"word": visible(word, NAME, keep=""), "kind": kind, "reasons": _sentences(reasons)}

    @property
    def was_stopped(self) -> bool:
        """Whether a callback ended it, on purpose."""
        return self.status is not None and self.status.state == "stopped"

    @property
    def ending(self) -> str:
        """State and steps, in a sentence."""
        steps = f"{self.glance.step} of {self.glance.total_steps}" if self.glance.total_steps else f"{self.glance.step}"
        why = f" ({visible(outcome(self.glance), SENTENCE, keep='')})" if self.glance.state == "stopped" else ""
        best = "" if self.glance.best_step is None else f"; the best policy is that of step {self.glance.best_step}"
        return f"{self.glance.state.capitalize()}{why} after {steps} steps{best}"

    @property
    def times(self) -> str:
        """When it was started, and how long it took."""
        if self.status is None:
            return ""
        started = utc_time(self.status.started)
        ended = utc_time(self.status.ended)
        if started is None:
            return ""
        took = f", {minutes((ended - started).total_seconds())}" if ended and ended >= started else ""
        return f"{started:%Y-%m-%d %H:%M} UTC{took}"

    @property
    def alarms(self) -> list[str]:
        """Every alarm of an evaluation with its reasons, and what was counted in training."""
        found = []
        for row in self.evaluations:
            if is_alarm(row):
                reasons = row.get("reasons")
                why = "; ".join(map(str, reasons)) if isinstance(reasons, list) else ""
                found.append(f"step {row['step']:g}: {row['status']}{': ' if why else ''}{why}")
        last = self.train[-1] if self.train else {}
        found += [f"{last[name]:g} {what}" for name, what in COUNTED.items() if (number(last.get(name)) or 0) > 0]
        return _sentences(found)

    @property
    def changed_settings(self) -> dict[str, dict[str, Any]]:
        """Settings that are not the defaults."""
        usual = {name: value for name, value in PPOConfig().to_dict().items() if name in self.settings}
        return differing_settings({"default": usual, "run": self.settings})


def read_facts(name: str, path: Path) -> RunFacts:
    """Read a run folder."""
    tail = MetricsTail(path / METRICS)
    tail.refresh()
    glance = overview(path)
    return RunFacts(
        name=visible(name, NAME, keep=""),
        glance=glance,
        status=read_status(path),
        settings=read_settings(path),
        train=tail.rows(),
        evaluations=tail.rows("eval"),
        samples=before_and_after(path, glance.best_step, broken=any(is_alarm(row) for row in tail.rows("eval")[-1:])),
        changes=read_changes(path),
        came_from=came_from(path),
    )


def came_from(run: Path) -> str:
    """The runs that a run came from, in words: never their paths, which mean nothing to others."""
    try:
        found = noted_ancestors(run)
    except RunFolderError:
        return ""
    steps = ("" if one.step is None else f" (step {one.step})" for one in found)
    names = (visible(run_of(Path(one.path)).name, NAME, keep="") for one in found)
    return ", before that ".join(map("".join, zip(names, steps, strict=True)))


def read_changes(run: Path) -> list[Row]:
    """The lines of metrics.jsonl about settings that callbacks have changed, as far as they can be used."""
    rows = [parse_row(line) for line in _lines(run / METRICS) if b'"change"' in line]
    return [
        {name: visible(str(row[name]), NAME, keep="") for name in ("setting", "by")}
        | {"step": row["step"], "old": number(row.get("old")), "new": number(row.get("new"))}
        for row in rows
        if row is not None and row["kind"] == "change" and {"setting", "by"} <= row.keys()
    ]


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")
    except OSError:
        return []


def before_and_after(run: Path, best_step: int | None, broken: bool) -> list[dict[str, Any]]:
    """The first held-out prompts, not chosen ones, with their responses at the first and at the best evaluation.

    Of a run that ended ``broken`` also those of the last one, because they are what went wrong.
    """
    found = HeldOutSamples(run)
    steps = found.steps()
    if not steps:
        return []
    best = best_step if best_step in steps else steps[-1]
    shown = dict.fromkeys((steps[0], best, *steps[-1:] * broken))
    rows = []
    for number_ in list(found.rewards(steps[0]))[:SAMPLES]:
        answers = [(step, sample) for step in shown if (sample := found.sample(step, number_)) is not None]
        if answers and answers[0][0] == steps[0]:
            told = [_answer(*answer) for answer in answers]
            rows.append({"prompt": content_text(answers[0][1].get("prompt")), "answers": told})
    return rows


def _answer(step: int, sample: dict[str, Any]) -> dict[str, Any]:
    reward = sample.get("reward")
    total = sum(one for one in reward if number(one) is not None) if isinstance(reward, list) else number(reward)
    return {"step": step, "response": visible(str(sample.get("response", "")), RESPONSE), "reward": total}


def _sentences(texts: Sequence[str]) -> list[str]:
    return [visible(text, SENTENCE, keep="") for text in texts[:50]]


def minutes(seconds: float) -> str:
    """90 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
