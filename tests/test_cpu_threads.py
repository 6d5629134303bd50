"""A model is computed with as many threads as pay, and waiting threads do not hold up the whole machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ppolm.base_setup import BaseModelSetup, cpu_threads
from ppolm.base_setup.cpu_threads import use_threads
from ppolm.config import SFTConfig


@pytest.fixture(autouse=True)
def same_threads_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setattr(cpu_threads, "available", lambda: 4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("width", "threads"), [(32, 1), (64, 1), (128, 2), (255, 3), (1024, 4)])
def test_a_wider_model_has_more_threads_as_far_as_there_are(
    width: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    use_threads(None, width)
    assert torch.get_num_threads() == threads


def test_whoever_asks_for_threads_gets_them(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu", threads=3))
    assert torch.get_num_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))
    assert torch.get_num_threads() == 3, "as the environment says"
    monkeypatch.delenv("OMP_NUM_THREADS")
    BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "None")],
)
def test_waiting_is_set_before_torch_is_loaded_unless_somebody_has(given: dict[str, str], expected: str) -> None:
    script = "import sys, os, ppolm; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    clean = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    answer = subprocess.run(
        [sys.executable, "-c", script], env=clean | given, capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == [expected, "False"]
