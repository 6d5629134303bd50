"""The benchmarks run and measure what they say."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from bench import ours
from bench.cases import CASES, QUICK
from bench.compare import PHASES, limit_shares, table
from bench.machine import busy_programs, gemm_gflops
from bench.operations import Work
from bench.shapes import SHAPES, make_prompts, model_config, parser
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


def test_operations_are_two_per_weight_and_token() -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(model_config("tiny"))
    linear = [p for name, p in model.named_parameters() if "proj" in name and p.dim() == 2]
    work = Work("tiny", prompt=10, response=0, batch=1)
    attention = 4 * 64 * 5 * SHAPES["tiny"]["num_hidden_layers"]
    assert work.block * SHAPES["tiny"]["num_hidden_layers"] == 2 * sum(p.numel() for p in linear) + attention
    whole, top = (Work("small", 100, 20, batch=8, samples=2, layers=layers) for layers in (None, 1))
    assert whole.tokens == 4 * 100 + 8 * 20
    assert top.scoring() - 2 * top.logits == pytest.approx((whole.scoring() - 2 * whole.logits) * 7 / 16)
    assert top.training() - 2 * top.logits == pytest.approx((whole.training() - 2 * whole.logits) / 4)
    believed = Work("small", 100, 20, batch=8, samples=2, recomputed=False)
    assert whole.scoring() - believed.scoring() == pytest.approx(whole.tokens * whole.block * 4 + whole.logits)


def test_the_table_has_a_line_for_each_case_and_says_what_failed() -> None:
    seconds = dict.fromkeys(PHASES, 2.0)
    row = {"case": "A", "target": 1.5, "peer": seconds, "ours": seconds, "ratio": dict.fromkeys(PHASES, 1.0)}
    text = table([row | {"peer_gib": 1.2, "ours_gib": 0.8}, {"case": "F"}])
    assert "| A | 2.00 | 2.00 | **1.0** | 1.5 | 1.0 | 1.0 | 1.0 | 1.2 | 0.8 |" in text
    assert "| F | failed |" in text
    shares = limit_shares(CASES[0], seconds | {"scoring": 1.0, "optimisation": 1.0}, gflops=100.0, recomputed=True)
    assert 0 < shares["scoring"] < shares["training"]


def test_the_machine_is_measured() -> None:
    assert gemm_gflops(torch.float32, threads=1, seconds=0.05) > 0.1
    assert all(share > 0.2 for share in busy_programs(0.1).values())


def test_prompts_are_the_same_on_both_sides_and_as_long_as_asked() -> None:
    prompts = make_prompts("small", 50, 10, 20)
    assert prompts == make_prompts("small", 50, 10, 20)
    assert {len(prompt) for prompt in prompts} == set(range(10, 21))
