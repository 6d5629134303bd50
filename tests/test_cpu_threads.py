"""A model is computed with as many threads as pay, and waiting threads do not hold up the whole machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup import BaseModelSetup, cpu_threads
from ppolm.base_setup.cpu_threads import use_threads
from ppolm.config import SFTConfig
from ppolm.rollout.samplers import sample
from ppolm.rollout.sampling import Sampling


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


@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (15, 1), (16, 2), (31, 3), (32, 4), (99, 4)])
def test_single_tokens_of_few_rows_have_fewer_threads_while_they_are_computed(
    rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    chosen = use_threads(None, 256)
    with chosen.for_tokens(rows):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 4
    asked = use_threads(3, 256)
    with asked.for_tokens(rows):
        assert torch.get_num_threads() == 3, "as somebody asked"


def test_a_rollout_computes_its_tokens_with_the_threads_of_its_rows(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    setup = BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))
    setup.threads = cpu_threads.Threads(2, 256)
    torch.set_num_threads(2)
    used: list[tuple[int, int]] = []
    blocks = setup.blocks

    def watch(**inputs: Any) -> Any:
        given = inputs["input_ids"] if "input_ids" in inputs else inputs["inputs_embeds"]
        used.append((int(given.shape[1]), torch.get_num_threads()))
        return blocks(**inputs)

    monkeypatch.setattr(setup, "blocks", watch)
    sample("slots", setup, [[5, 6, 7], [8, 9, 10]], Sampling(4), torch.full((2, 4), 0.5, dtype=torch.float64))
    assert {threads for length, threads in used if length > 1} == {2}, "prompts are read whole"
    assert {threads for length, threads in used if length == 1} == {1}
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1500"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "None")],
)
def test_waiting_is_set_before_torch_is_loaded_unless_somebody_has(given: dict[str, str], expected: str) -> None:
    script = "import sys, os, ppolm; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    clean = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    answer = subprocess.run(
        [sys.executable, "-c", script], env=clean | given, capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == [expected, "False"]
