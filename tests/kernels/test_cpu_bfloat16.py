"""bfloat16 on the CPU works or falls back, and never crashes the process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator

import pytest
import torch

from ppolm.kernels import cpu_bfloat16

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the crash was seen on Linux only")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As in a new process: nothing tried yet. Flags and environment are restored afterwards."""
    enabled = torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", os.environ.get("ONEDNN_MAX_CPU_ISA", ""))
    cpu_bfloat16.make_bfloat16_safe.cache_clear()
    yield monkeypatch
    torch.backends.mkldnn.set_flags(_enabled=enabled)
    cpu_bfloat16.make_bfloat16_safe.cache_clear()


def test_a_child_that_crashes_is_noticed(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(cpu_bfloat16.torch.nn.functional, "linear", lambda *_: os.kill(os.getpid(), 4))  # SIGILL
    assert not cpu_bfloat16.products_work()
    fresh.setattr(cpu_bfloat16.torch.nn.functional, "linear", lambda *_: 1 / 0)
    assert not cpu_bfloat16.products_work()
    fresh.setattr(cpu_bfloat16.torch.nn.functional, "linear", lambda *_: None)
    assert cpu_bfloat16.products_work()


@pytest.mark.parametrize(("works", "isa", "enabled"), [([True], "", True), ([False, True], "AVX512_CORE_FP16", True)])
def test_instructions_are_limited_only_where_products_crash(
    fresh: pytest.MonkeyPatch, works: list[bool], isa: str, enabled: bool
) -> None:
    fresh.setenv("ONEDNN_MAX_CPU_ISA", "")
    answers = iter(works)
    fresh.setattr(cpu_bfloat16, "products_work", lambda: next(answers))
    torch.backends.mkldnn.set_flags(_enabled=True)
    cpu_bfloat16.make_bfloat16_safe()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == isa
    assert torch._C._get_mkldnn_enabled() == enabled


def test_the_last_resort_is_to_do_without_the_library_and_products_then_work(
    fresh: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    really_work = cpu_bfloat16.products_work
    fresh.setattr(cpu_bfloat16, "products_work", lambda: False)
    with caplog.at_level(logging.WARNING):
        cpu_bfloat16.make_bfloat16_safe()
    assert "without oneDNN" in caplog.text
    assert really_work()  # for real, on this CPU
