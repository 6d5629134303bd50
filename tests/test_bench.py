"""The benchmark of the table runs and measures what it says."""

from __future__ import annotations

from bench.table_stages import measure


def test_table_benchmark_times_every_stage_on_the_rows_asked_for() -> None:
    figures = measure(rows=2_000, longest=50, repeats=1)
    assert 1_000 < figures["rows"] < 4_000
    stages = ("kl", "adjust", "td_error", "gae", "reward_to_go")
    assert all(figures[stage] > 0 for stage in stages)
    assert figures["total"] == sum(figures[stage] for stage in stages)
