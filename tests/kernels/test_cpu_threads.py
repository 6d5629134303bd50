"""A model uses as many threads as pay off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ppolm.base_setup import BaseModelSetup
from ppolm.config import SFTConfig
from ppolm.kernels import cpu_threads
from ppolm.kernels.cpu_threads import use_threads


@pytest.fixture(autouse=True)
def same_threads_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setattr(cpu_threads, "available", lambda: 4)
    monkeypatch.setattr(cpu_threads, "watch_neighbours", lambda: None)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("width", "threads"), [(32, 1), (64, 1), (128, 2), (255, 3), (1024, 4)])
def test_a_wider_model_has_more_threads_as_far_as_there_are(
    width: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    use_threads(None, width)
    assert torch.get_num_threads() == threads


def test_what_one_model_was_given_does_not_decide_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(cpu_threads, "available", cpu_threads.functools.cache(torch.get_num_threads))
    torch.set_num_threads(4)  # as torch itself would choose
    use_threads(1, 1024)
    use_threads(None, 1024)
    assert torch.get_num_threads() == 4


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
