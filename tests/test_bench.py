"""The benchmarks run and measure what they say."""

from __future__ import annotations

import json
import sys

import pytest

from bench import ours
from bench.cases import CASES, QUICK
from bench.shapes import make_prompts, parser
from bench.table_stages import measure


def test_table_benchmark_times_every_stage_on_the_rows_asked_for() -> None:
    figures = measure(rows=2_000, longest=50, repeats=1)
    assert 1_000 < figures["rows"] < 4_000
    stages = ("kl", "adjust", "td_error", "gae", "reward_to_go")
    assert all(figures[stage] > 0 for stage in stages)
    assert figures["total"] == sum(figures[stage] for stage in stages)


def test_our_side_times_every_phase_of_a_ppo_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "--shape tiny --shortest 5 --longest 9 --response 4 --batch 4 --samples 2 --layers 1 --epochs 1 --steps 2"
    monkeypatch.setattr(sys, "argv", ["ours", *flags.split(), "--threads", "1"])
    ours.main()
    answer = json.loads(capsys.readouterr().out)
    seconds = answer["best_step_s"]
    phases = ("generation", "scoring", "optimisation")
    assert all(seconds[phase] > 0 for phase in phases)
    assert seconds["total"] == pytest.approx(sum(seconds[phase] for phase in phases), abs=0.01)
    assert answer["response_length"] == pytest.approx(4, abs=1)
    assert answer["peak_rss_gib"] > 0.1


def test_every_case_is_understood_by_both_sides() -> None:
    for case in CASES:
        given = parser(None).parse_args([*case.flags, *case.ours])
        assert given.batch % given.samples == 0
        assert case.target > 1
    assert set(QUICK) <= {case.name for case in CASES}


def test_prompts_are_the_same_on_both_sides_and_as_long_as_asked() -> None:
    prompts = make_prompts("small", 50, 10, 20)
    assert prompts == make_prompts("small", 50, 10, 20)
    assert {len(prompt) for prompt in prompts} == set(range(10, 21))
