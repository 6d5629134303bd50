"""Memory that one pass frees is there for the next one."""

from __future__ import annotations

import resource
import sys

import pytest
import torch

from ppolm.base_setup import cpu_memory
from ppolm.base_setup.cpu_memory import keep_freed_memory


def touched_pages(megabytes: int) -> int:
    """Pages that the system has to give when so much memory is taken, written and freed once more."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tensors = [torch.zeros(2**20 // 4) for _ in range(megabytes)]
    del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_freed_memory_is_used_again_without_asking_the_system() -> None:
    if not keep_freed_memory():
        pytest.skip("this C library has no such setting")
    touched_pages(64)
    assert touched_pages(64) < 0.05 * 64 * 2**20 / resource.getpagesize()


def test_a_c_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> object:
        raise OSError

    monkeypatch.setattr(cpu_memory.ctypes, "CDLL", none)
    assert keep_freed_memory.__wrapped__() is False
