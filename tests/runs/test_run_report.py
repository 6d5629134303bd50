"""report/: what a person should know first stands first, figures have intervals, samples are the first ones."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from ppolm.evaluation.verdict import Performance
from ppolm.runs.results import TrainingResults
from ppolm.runs.run_facts import before_and_after
from ppolm.runs.run_plots import SMOOTHED_FROM, draw_held_out, draw_training, smoothed
from ppolm.runs.run_report import write_report
from ppolm.runs.run_status import RunStatus
from ppolm.runs.run_warnings import warnings_of
from ppolm.storage.metrics_log import read_metrics
from tests.made_runs import HOSTILE, make_run, training_row

SETTINGS = {"max_new_tokens": 10, "learning_rate": 1e-5}
HEALTHY = {"ended_fraction": 0.9, "kl_per_token": 0.05, "num_responses": 8}


def report(run: Path, **changes: Any) -> str:
    """summary.md of a made run."""
    found = TrainingResults(
        run_dir=run,
        best_dir=run / "best",
        steps=12,
        stopped="finished",
        verdict="improved",
        reasons=("reward rose",),
        performance=Performance(True, 1.2, 0.0, 1.2, 12),
        metrics=[],
        evaluations=read_metrics(run, "eval"),
    )
    write_report(dataclasses.replace(found, **changes))
    return (run / "report" / "summary.md").read_text(encoding="utf-8")


def steps(count: int, **columns: Any) -> list[dict[str, Any]]:
    return [training_row(step, **HEALTHY | columns) for step in range(1, count + 1)]


def write_samples(run: Path, at: Sequence[int]) -> None:
    """Five responses at each evaluation."""
    rows = [
        {"kind": "eval", "step": step, "sequence": number, "prompt": f"p{number}", "response": f"r{step}", "reward": 1}
        for step in at
        for number in range(5)
    ]
    (run / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


# ---- warnings --------------------------------------------------------------------------------------------------------


def test_a_healthy_run_has_no_warning() -> None:
    assert warnings_of(steps(20, clip_fraction=0.1), [], SETTINGS) == []


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"ended_fraction": 0.0}, ["Only 0% of the responses end by themselves", "after 10 tokens", "max_new_tokens"]),
        ({"reward_std": 0.0}, ["In 20 of 20 steps all responses had the same reward"]),
        ({"kl_per_token": 0.0001}, ["hardly moved", "Raise learning_rate (it is 1e-05)"]),
        ({"clip_fraction": 0.5}, ["50% of the tokens left the clip range", "Lower learning_rate"]),
        ({"value_accuracy": -0.4}, ["worse than a constant", "-0.40", "value_learning_rate"]),
    ],
)
def test_each_trouble_is_said_in_words_with_what_to_turn(columns: dict[str, float], words: list[str]) -> None:
    (said,) = warnings_of(steps(20, **{"clip_fraction": 0.1} | columns), [], SETTINGS)
    assert all(word in said for word in words), said


def test_a_model_that_never_ends_is_to_learn_it_and_a_penalty_that_is_set_is_not_proposed() -> None:
    for ended, penalty, words in (
        (0.0, 1.0, "teach it with ppolm sft"),
        (0.2, 1.0, "Raise max_new_tokens, or missing_eos_penalty."),
        (0.2, 0.0, "or set missing_eos_penalty to 1."),
    ):
        cut = steps(20, clip_fraction=0.1, ended_fraction=ended)
        (said,) = warnings_of(cut, [], {**SETTINGS, "missing_eos_penalty": penalty})
        assert words in said


@pytest.mark.parametrize("status", ["collapsed", "over-optimised", "suspect"])
def test_a_run_that_ended_badly_says_what_to_turn(status: str) -> None:
    ends = [{"step": 0, "status": "baseline"}, {"step": 20, "status": status}]
    settings = {**SETTINGS, "kl_coef": 0.0}
    (said,) = warnings_of(steps(20, clip_fraction=0.1), ends, settings)
    assert "Lower learning_rate (it is 1e-05), or raise kl_coef (it is 0.0)" in said
    assert warnings_of(steps(20, clip_fraction=0.1), [ends[1], ends[0]], settings) == []


def test_the_texts_of_a_run_that_ended_badly_are_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 12)
    write_samples(run, (0, 6, 12))
    for broken, expected in ((False, [0, 6]), (True, [0, 6, 12])):
        told = before_and_after(run, 6, broken)
        assert [answer["step"] for answer in told[0]["answers"]] == expected
    assert [answer["step"] for answer in before_and_after(run, 0, broken=True)[0]["answers"]] == [0, 12]


def test_held_out_responses_decide_whether_responses_are_cut_off() -> None:
    cut = steps(20, clip_fraction=0.1, ended_fraction=0.0)
    assert warnings_of(cut, [{"step": 20, "ended_fraction": 0.9}], SETTINGS) == []


def test_a_short_run_is_not_said_to_stand_still() -> None:
    assert warnings_of(steps(3, clip_fraction=0.1, kl_per_token=0.0, value_accuracy=-1.0), [], SETTINGS) == []


# ---- summary.md ------------------------------------------------------------------------------------------------------


def test_the_summary_begins_with_warnings_and_has_figures_samples_time_and_settings(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 12, ended_fraction=0.0)
    write_samples(run, (0, 12))
    text = report(run, doubts=("The reward model is not ready.",))
    order = ["> **Warning.** The reward model is not ready.", "> **Warning.** Only 0%", "**Verdict: improved**"]
    order += ["95 % intervals", "| reward (`avg_reward`) |", "Change of the reward", "](reward.png)", "](ended.png)"]
    order += ["## Samples", "p0", "Step 0, reward 1", "r0", "Step 12", "r12", "## Time", "generate 20%", "## Settings"]
    assert [words for words in order if words not in text] == []
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "p3" not in text, "the first three prompts"
    assert "| `learning_rate` | 0.0001 | 1e-05 |" in text
    assert "min_delta" not in text, "settings that have their defaults"


def test_an_interval_of_the_summary_is_that_of_the_evaluation(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 12)
    line = next(line for line in report(run).splitlines() if "`judge`" in line)
    # 32 prompts: t(31) = 2.0395, and 0.2 / √31
    assert "0.3 [0.227, 0.373]" in line


def test_texts_of_a_model_stay_texts(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2)
    row = {"kind": "eval", "step": 0, "sequence": 0, "prompt": f"```\n# no heading {HOSTILE}", "response": "````x"}
    (run / "samples.jsonl").write_text(json.dumps(row) + "\n")
    text = report(run)
    assert "````text\n```\n# no heading" in text
    assert "`````text\n````x\n`````" in text
    assert text.replace("\n", "").isprintable()


def test_a_run_without_evaluations_has_a_report_too(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3, status=RunStatus("running", 3))
    rows = [row for row in (run / "metrics.jsonl").read_text().splitlines() if '"train"' in row]
    (run / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    text = report(run, performance=None, evaluations=[])
    assert "## On held-out prompts" not in text
    assert (run / "report" / "reward.png").is_file()
    assert not (run / "report" / "judge.png").exists()


# ---- plots -----------------------------------------------------------------------------------------------------------


def test_smoothing_keeps_a_constant_and_follows_a_step() -> None:
    assert smoothed([2.0] * 50) == pytest.approx([2.0] * 50)
    after = smoothed([0.0] * 50 + [1.0] * 50)
    assert after[49] == 0.0
    assert after[-1] > 0.95
    assert all(one <= other for one, other in pairwise(after))


@pytest.mark.parametrize(("count", "lines"), [(SMOOTHED_FROM - 1, 1), (SMOOTHED_FROM, 2)])
def test_few_steps_are_drawn_as_they_are_and_many_smoothed(count: int, lines: int) -> None:
    axes = Figure().subplots()
    draw_training(axes, steps(count), "avg_reward")
    drawn: list[Any] = list(axes.lines)
    assert len(drawn) == lines
    assert list(drawn[0].get_ydata()) == [step / 10 for step in range(1, count + 1)]


def test_held_out_points_have_the_interval_of_their_evaluation() -> None:
    axes = Figure().subplots()
    rows = [{"step": 0, "avg_reward": 1.0, "reward_std": 0.5, "num_prompts": 26}]
    draw_held_out(axes, rows, "avg_reward")
    bars: Any = axes.collections[0]
    low, high = bars.get_segments()[0][:, 1]
    # t(25) = 2.0595, and 0.5 / √25
    assert (low, high) == pytest.approx((1 - 0.20595, 1 + 0.20595), abs=1e-4)
