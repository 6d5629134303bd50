"""The benchmarks run and measure what they say."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import compare, decode_profile, fast_paths, generation, neighbour, ours, packing, shared_prefix, sides
from bench.cases import CASES, GENERATION, LEAN, QUICK
from bench.compare import limit_shares
from bench.growth import CURVES
from bench.machine import BUSY, busy_programs, peak_gib
from bench.plot import draw
from bench.shapes import make_prompts, parser
from bench.table_stages import measure
from bench.tables import PHASES, case_table
from tests.conftest import ROOT


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


def test_two_sides_take_steps_in_turns_alone_and_beside_a_busy_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    turns = tmp_path / "turns"
    script = (
        "import os, sys\n"
        "side = 'before' if os.environ.get('GOMP_SPINCOUNT') == '300000' else 'ours'\n"
        "assert sys.argv[sys.argv.index('--threads') + 1] == ('auto' if side == 'ours' else str(os.cpu_count()))\n"
        "for line in sys.stdin:\n"
        f"    print(side, file=open({str(turns)!r}, 'a'))\n"
        "    print({'before': 3.0, 'ours': 2.0}[side], flush=True)\n"
    )
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")  # not passed on
    monkeypatch.setattr(neighbour, "PROGRAM", [sys.executable, "-c", script])

    @contextmanager
    def busy_program() -> Iterator[None]:
        turns.open("a").write("busy\n")
        yield

    monkeypatch.setattr(neighbour, "neighbour", busy_program)
    found = neighbour.measure("tiny", 2)
    assert found == {("before", False): 3, ("ours", False): 2, ("before", True): 3, ("ours", True): 2}
    pair = ["before", "ours"]
    assert turns.read_text().split() == [*pair, *pair, *pair, "busy", *pair, *pair], "a first step does not count"


def test_our_side_takes_a_step_whenever_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = "--batch 2 --response 2 --shortest 3 --longest 3 --epochs 1 --steps 9 --threads 1 --paced"
    monkeypatch.setattr(sys, "argv", ["ours", "--shape", "tiny", *small.split()])
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n\n"))
    ours.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3, "two steps, and the whole"
    assert [float(line) for line in lines[:2]] == pytest.approx(json.loads(lines[2])["steps_s"], abs=1e-3)


def test_the_peak_of_a_program_is_its_own_and_not_that_of_the_one_that_started_it() -> None:
    large = bytearray(2**30)
    large[::4096] = b"1" * len(large[::4096])  # pages are allocated only when written to
    script = "from bench.machine import peak_gib; print(peak_gib())"
    answer = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(large) / 2**30 < peak_gib()
    assert float(answer.stdout) < 0.5


def test_every_case_is_understood_by_both_sides() -> None:
    for case in (*CASES, *QUICK):
        given, own = parser(None).parse_known_args([*case.flags, *case.ours])
        assert own in ([], LEAN)
        assert given.batch % given.samples == 0
        assert case.target > 1


def test_every_curve_and_generation_case_is_understood() -> None:
    for curve in CURVES:
        for value in curve.values:
            given = parser(None).parse_args(curve.flags_at(value))
            assert getattr(given, curve.flags[0].removeprefix("--")) == value
            assert given.batch % given.samples == 0
    assert all("--response" in flags for flags in GENERATION.values())


def test_the_table_has_a_line_for_each_case_and_says_what_failed() -> None:
    seconds = dict.fromkeys(PHASES, 2.0)
    row = {"case": "A", "target": 1.5, "peer": seconds, "ours": seconds, "ratio": dict.fromkeys(PHASES, 1.0)}
    sizes = {"peer_gib": 1.2, "ours_gib": 0.8, "estimated_gib": 0.9}
    text = case_table([row | sizes | {"limit_shares": {"scoring": 0.5, "training": 0.25}}, {"case": "F"}])
    assert "| A | 2.00 | 2.00 | **1.00** | 1.5 | 1.00 | 1.00 | 1.00 | 1.2 | 0.8 | 0.9 | 50 % | 25 % |" in text
    assert "| F | failed |" in text
    shares = limit_shares(CASES[0], seconds | {"scoring": 1.0, "optimisation": 1.0}, gflops=100.0, recomputed=True)
    assert 0 < shares["scoring"] < shares["training"]


@pytest.mark.pictures
def test_the_whole_comparison_writes_figures_tables_and_a_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The measuring programs are replaced by stubs; they are tested above."""

    def answer(side: str, _: list[str]) -> dict[str, Any]:
        if side == "generation":
            rates = {"ours": 200.0, "generate": 100.0, "generate, no adapter": 160.0}
            return {"tokens_per_second": rates, "ratio": {"generate": 2.0, "generate, no adapter": 1.25}}
        seconds = dict.fromkeys(PHASES, 4.0 if side == "peer" else 2.0)
        return {"best_step_s": seconds, "peak_rss_gib": 1.0, "estimated_gib": 1.1, "recomputed": True}

    compare.peer.cache_clear()
    monkeypatch.setattr(compare, "run", answer)
    monkeypatch.setattr(compare, "measure_limits", lambda _: {"float32": 100.0, "bfloat16": 200.0})
    monkeypatch.setattr(sys, "argv", ["compare", "--output", str(tmp_path / "results.json")])
    compare.main()
    printed = capsys.readouterr().out
    assert all(f"| {case.name} | 4.00 | 2.00 | **2.00** |" in printed for case in CASES)
    assert all(name in printed for name in GENERATION)
    assert all(f"| {curve.name} | {curve.values[0]}: " in printed for curve in CURVES)
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["cases"]) == len(CASES)
    assert len(results["growth"]) == len(CURVES)
    assert (tmp_path / "results.png").stat().st_size > 10_000
    draw({"cases": results["cases"][:2]}, tmp_path / "few.png")
    assert (tmp_path / "few.png").exists()


def test_generation_is_measured_on_both_sides_with_responses_of_different_lengths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (
        "--shape tiny --shortest 3 --longest 9 --response 12 --batch 6 --samples 2 --ending 0.2 --steps 1 --threads 1"
    )
    monkeypatch.setattr(sys, "argv", ["generation", *flags.split()])
    generation.main()
    answer = json.loads(capsys.readouterr().out)
    assert set(answer["tokens_per_second"]) == {"ours", "generate", "generate, no adapter"}
    assert 1 <= answer["mean_length"] < 12


def test_what_a_faster_way_gives_is_the_best_step_without_it_by_the_best_of_all() -> None:
    case = next(case for case in CASES if case.name == "A")
    asked: list[str | None] = []

    def measured(way: str | None) -> dict[str, float]:
        asked.append(way)
        noise = 1.5 if len(asked) < 5 else 1.0  # a busy machine in the first round
        return dict.fromkeys(fast_paths.PHASES, noise * (2.0 if way == "fused_blocks" else 1.0))

    ways = ("fused_adapters", "fused_blocks", "packed_prompts", "slot_sampler")
    found = fast_paths.measure(case, ways, 2, measured)
    turn = ["fused_adapters", "fused_blocks", "slot_sampler"]  # packing does nothing in this case
    assert asked == [None, *turn, None, *turn[::-1]]
    assert {way: one["total"] for way, one in found.items()} == dict.fromkeys(turn, 1.0) | {"fused_blocks": 2.0}
    assert "| fused_blocks | 2.00 (generation 2.00) |" in fast_paths.table({"A": found})
    assert fast_paths.idle_ways({"A": found}) == ["fused_adapters", "slot_sampler"]


def test_a_program_that_is_loaded_already_runs_in_a_copy_of_the_process() -> None:
    def main() -> None:
        print("a line before")
        print(json.dumps({"given": sys.argv[1:], "process": os.getpid()}))

    found = sides.forked(main, ["--one", "2"])
    assert found["given"] == ["--one", "2"]
    assert found["process"] != os.getpid()
    assert sides.forked(lambda: sys.exit(3), []) == {"failed": 1}


def test_packing_is_timed_both_ways_and_as_decided(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packing, "QUICK", ((40, 8, 4),))
    monkeypatch.setattr(sys, "argv", ["packing", "--shape", "tiny", "--quick", "--rounds", "1"])
    packing.main()
    printed = capsys.readouterr().out
    assert "| 40, 4 x 8 | 4 |" in printed
    assert re.search(r"at most [01]\.\d\d times as long", printed)


def test_sampling_from_prompts_that_begin_alike_is_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "--shape tiny --batch 5 --longest 9 --response 2 --steps 2 --threads 1"
    monkeypatch.setattr(sys, "argv", ["shared_prefix", *flags.split()])
    shared_prefix.main()
    assert json.loads(capsys.readouterr().out)["best_step_s"]["total"] > 0


def test_a_curve_of_a_cost_for_each_shows_milliseconds_and_the_others_seconds() -> None:
    figures = {curve.name: curve.figure(2.0, 100) for curve in CURVES}
    assert {figure for name, figure in figures.items() if name.startswith("ms per ")} == {20.0}
    assert {figure for name, figure in figures.items() if not name.startswith("ms per ")} == {2.0}


def test_lengths_to_end_at_repeat_and_differ() -> None:
    given = argparse.Namespace(batch=200, response=64, ending=0.02)
    lengths = generation.draw_lengths(given, 1)
    assert lengths == generation.draw_lengths(given, 1) != generation.draw_lengths(given, 2)
    assert min(lengths) >= 1
    assert max(lengths) == 64
    assert 30 < sum(lengths) / 200 < 42, "the mean of a length that ends with a probability of 0.02 and is cut at 64"


def test_the_profile_of_a_step_accounts_for_all_of_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "--shape tiny --shortest 3 --longest 9 --response 12 --batch 3 --threads 1"
    monkeypatch.setattr(sys, "argv", ["decode_profile", *flags.split()])
    decode_profile.main()
    printed = capsys.readouterr().out
    assert re.search(r"a step of 3 rows: [\d.]+ ms, of 10", printed)
    assert len(re.findall(r"^ +[\d.]+ ms", printed, re.MULTILINE)) == len(decode_profile.PARTS) + 1
    assert "reading the" in printed
    # Compare before rounding: on a fast CPU a part of so small a step is printed as 0.00 ms.
    step = decode_profile.measure(parser("").parse_args(flags.split()))
    assert set(step.parts) == {*decode_profile.PARTS, "everything else"}
    assert all(milliseconds > 0 for milliseconds in step.parts.values())
    assert sum(step.parts.values()) == pytest.approx(step.total)


def test_a_side_that_fails_is_reported_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "MODULES", {"ours": "bench.no_such_module"})
    assert sides.run("ours", []) == {"failed": 1}


def test_busy_programs_are_named() -> None:
    assert all(share >= BUSY for share in busy_programs(0.1).values())  # >=, because shares are rounded


def test_prompts_are_the_same_on_both_sides_and_as_long_as_asked() -> None:
    prompts = make_prompts("small", 50, 10, 20)
    assert prompts == make_prompts("small", 50, 10, 20)
    assert {len(prompt) for prompt in prompts} == set(range(10, 21))
