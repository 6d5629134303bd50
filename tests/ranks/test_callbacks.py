"""Callbacks in several processes: told on the first one, and what they decide holds on all of them."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from tests.ranks.launching import run


def test_what_callbacks_decide_on_the_first_process_holds_on_all_of_them(tmp_path: Path) -> None:
    code, output = run(2, "tests.ranks.callbacks_job", tmp_path / "found.pt", tmp_path / "runs")
    assert code == 0, output
    first, second = torch.load(tmp_path / "found.pt")
    for name, calls in (("stops", 3), ("fails", 2)):
        assert (first[name].pop("calls"), second[name].pop("calls")) == (calls, 0)
        assert first[name] == second[name]
        assert (first[name]["kl"], first[name]["learning_rate"], first[name]["step"]) == (0.25, 3e-4, calls)
    assert first["stops"]["said"] == "Steering: enough"
    assert "The callback Steering failed in on_step (callbacks_job.py, line" in first["fails"]["said"]
    rows = [json.loads(line) for line in (tmp_path / "runs/stops/metrics.jsonl").read_text().splitlines()]
    assert [row["setting"] for row in rows if row["kind"] == "change"] == ["kl_coef", "learning_rate"], "written once"
    assert (tmp_path / "runs/fails/checkpoints/step-000002/manifest.json").is_file()
