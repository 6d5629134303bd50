"""The demo learns in two processes what it learns in one: the figures of docs/demo.md, within their intervals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.ranks.launching import ROOT, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("flags", [[], ["--shard-base"]], ids=["replicated", "sharded"])
def test_the_demo_in_two_processes_reaches_the_figures_of_the_page(tmp_path: Path, flags: list[str]) -> None:
    code, output = run(2, "ppolm", "demo", "--json", "--run-name", "x", *flags, cwd=tmp_path)
    assert code == 0, output
    found = json.loads((tmp_path / "runs" / "x" / "report" / "demo.json").read_text())
    before, low, high, gain_low, gain_high = seed_0()
    gold = found["sampled"]["gold"]
    assert gold["before"]["mean"] == pytest.approx(before, abs=0.001)
    assert low <= gold["after"]["mean"] <= high
    assert gain_low <= gold["change"]["mean"] <= gain_high
    assert found["verdict"] == "improved"
    assert found["test_posts"] == 256


def seed_0() -> tuple[float, ...]:
    """Gold before, its interval after, and that of the gain, from the page's row of the seed that the demo uses."""
    row = next(line for line in (ROOT / "docs" / "demo.md").read_text().splitlines() if line.startswith("| 0 |"))
    _, _, before, after, gain, *_ = row.split("|")
    return (float(before), *(float(number) for cell in (after, gain) for number in re.findall(r"[\d.]+", cell)[1:]))
