"""Final figures of a run with intervals, and what differs between runs: pure functions of rows and settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ppolm.evaluation.gain import gain_of
from ppolm.measures.intervals import CONFIDENCE, student_quantile
from ppolm.runs.run_overview import number

Row = Mapping[str, Any]
FIGURES = {
    "avg_reward": "reward",
    "judge": "judge",
    "kl": "KL to the reference",
    "kl_per_token": "KL per token",
    "entropy": "entropy",
    "value_accuracy": "value accuracy",
    "response_length": "length, tokens",
    "ended_fraction": "responses that end",
    "repetition": "repetition",
    "distinct_2": "different word pairs",
    "rouge_l": "ROUGE-L",
}
DEVIATIONS = {"avg_reward": "reward_std", "judge": "judge_std"}
"""Metrics whose spread over the responses is logged beside them."""
NOT_COMPARED = frozenset({"run_name", "output_dir"})
"""Settings that always differ between runs and say nothing."""


def final_figures(evaluations: Sequence[Row], best_step: int | None) -> list[dict[str, Any]]:
    """Each figure at the first, the best and the last evaluation, with a 95 % interval where its spread is known."""
    if not evaluations:
        return []
    best = next((row for row in evaluations if row["step"] == best_step), None)
    chosen = {"first": evaluations[0], "best": best, "last": evaluations[-1]}
    return [
        {"name": name, "label": label, **{when: figure(row, name) for when, row in chosen.items()}}
        for name, label in FIGURES.items()
        if any(row is not None and number(row.get(name)) is not None for row in chosen.values())
    ]


def figure(row: Row | None, name: str) -> dict[str, float] | None:
    """A figure of an evaluation, with its interval."""
    value = None if row is None else number(row.get(name))
    if row is None or value is None:
        return None
    found = {"step": float(row["step"]), "value": value}
    spread, prompts = number(row.get(DEVIATIONS.get(name, ""))), number(row.get("num_prompts"))
    if spread is not None and prompts is not None and prompts > 1:
        # the logged deviation is that of the sample, so the standard error divides by √(n − 1)
        margin = student_quantile((1 + CONFIDENCE) / 2, int(prompts) - 1) * spread / math.sqrt(prompts - 1)
        found |= {"low": value - margin, "high": value + margin}
    return found


def gains(evaluations: Sequence[Row], best_step: int | None) -> dict[str, dict[str, float]]:
    """Change of reward and judge from the first to the best evaluation, with intervals, prompt by prompt."""
    index = next((i for i, row in enumerate(evaluations) if row["step"] == best_step), None)
    if not index:
        return {}
    clean = [{name: value for name, value in row.items() if number(value) is not None} for row in evaluations]
    found = {name: gain_of(clean, index, name) for name in ("reward", "judge")}
    return {name: vars(gain) for name, gain in found.items() if gain is not None}


def differing_settings(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings that are not the same in all runs: by name, then by run."""
    names = dict.fromkeys(name for one in settings.values() for name in one)
    return {
        name: {run: one.get(name) for run, one in settings.items()}
        for name in names
        if name not in NOT_COMPARED and len({repr(one.get(name)) for one in settings.values()}) > 1
    }
