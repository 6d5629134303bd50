"""Memory that one pass frees is there for the next one."""

from __future__ import annotations

import platform
import sys

import pytest

from ppolm.base_setup import cpu_memory
from ppolm.base_setup.cpu_memory import keep_freed_memory


def test_the_c_library_is_told_to_keep_what_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []

    class Library:
        @staticmethod
        def mallopt(setting: int, value: int) -> int:
            told.append((setting, value))
            return 1

    monkeypatch.setattr(cpu_memory.ctypes, "CDLL", lambda _: Library)
    assert keep_freed_memory.__wrapped__() is True
    assert dict(told) == {cpu_memory.MMAP_THRESHOLD: cpu_memory.LARGEST_KEPT, cpu_memory.TRIM_THRESHOLD: 2**31 - 1}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_glibc_takes_the_settings() -> None:
    if "glibc" not in platform.libc_ver():
        pytest.skip("another C library")
    assert keep_freed_memory() is True


def test_a_c_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> object:
        raise OSError

    monkeypatch.setattr(cpu_memory.ctypes, "CDLL", none)
    assert keep_freed_memory.__wrapped__() is False
