"""The worked examples of docs/scaling.md are what the command prints today, and none of them passes for measured."""

from __future__ import annotations

from scripts.scaling_page import BLOCK, PAGE, rewritten


def test_the_plans_on_the_page_are_those_that_the_command_prints() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rewritten(page) == page, "write them again: python -m scripts.scaling_page"


def test_a_laptop_a_gpu_a_mac_eight_and_sixty_four_gpus_are_planned_and_said_to_be_computed() -> None:
    plans = [found[0] for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]
    for words in ("laptop", "gpu-24gb", "mac", "--devices 8", "--devices 40 --servers 24"):
        assert any(words in plan.split("Model:")[0] for plan in plans), words
    for plan in plans:
        assert "[computed from published figures of the hardware]" in plan
        assert "calibrated" not in plan
