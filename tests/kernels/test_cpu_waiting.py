"""Beside busy programs threads spin only briefly, on an idle machine for long; the results stay the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, call

import pytest
import torch

from ppolm.kernels import cpu_waiting
from ppolm.kernels.cpu_threads import use_threads
from ppolm.kernels.cpu_waiting import Crowd, Delays, loaded_libgomp, watch_neighbours

LIBRARY = loaded_libgomp()
needs_libgomp = pytest.mark.skipif(LIBRARY is None, reason="torch does not compute with libgomp here")


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in cpu_waiting.DECIDED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cpu_waiting, "_watch", lambda _: None)
    watch_neighbours.cache_clear()
    yield monkeypatch
    watch_neighbours.cache_clear()


def threads_here() -> set[str]:
    return {task.name for task in cpu_waiting.TASKS.iterdir()}


def end_sometime(threads: set[str]) -> bool:
    """Whether the threads end within a minute: the system may not get to it at once."""
    limit = time.monotonic() + 60
    while threads & threads_here() and time.monotonic() < limit:
        time.sleep(0.01)
    return not threads & threads_here()


@needs_libgomp
def test_a_crowd_gathers_goes_home_and_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LIBRARY is not None
    monkeypatch.setattr(cpu_waiting, "gather", Mock())  # a watcher started by an earlier test must not gather any
    matrix = torch.randn(512, 512, generator=torch.Generator().manual_seed(0))
    product = matrix @ matrix
    before = threads_here()
    crowd = Crowd(LIBRARY, 5)
    gathered = threads_here() - before
    assert len(gathered) == 5
    assert torch.equal(matrix @ matrix, product)
    crowd.disperse()
    assert end_sometime(gathered)
    assert torch.equal(matrix @ matrix, product)


def test_waiting_for_a_core_is_counted_over_threads_that_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waited(thread: int, seconds: float) -> None:
        (tmp_path / str(thread)).mkdir(exist_ok=True)
        (tmp_path / str(thread) / "schedstat").write_text(f"5 {round(seconds * 1e9)} 7\n")

    clock = iter((100.0, 102.0, 103.0))
    monkeypatch.setattr(cpu_waiting, "TASKS", tmp_path)
    monkeypatch.setattr(cpu_waiting.time, "monotonic", lambda: next(clock))
    waited(1, 1.0)
    waited(2, 4.0)
    delays = Delays()
    waited(1, 1.5)
    waited(2, 4.5)
    waited(3, 70.0)  # new: what it waited before does not count
    (tmp_path / "4").mkdir()  # just ended
    assert delays.share() == pytest.approx((0.5 + 0.5) / 2)
    (tmp_path / "2" / "schedstat").unlink()
    waited(3, 70.25)
    assert delays.share() == pytest.approx(0.25)


def test_the_crowd_is_there_while_threads_wait_for_cores_and_does_not_flicker(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[int] = []
    shares = iter((0.03, 0.12, 0.5, 0.12, 0.3, 0.03, 0.12, 0.4))

    class Watched:
        def disperse(self) -> None:
            there[-1] = 0

    def gather(library: str) -> Watched:
        assert library == "gomp"
        there[-1] = 1
        return Watched()

    def share(_: Delays) -> float:
        there.append(there[-1] if there else 0)
        return next(shares)

    monkeypatch.setattr(cpu_waiting, "gather", gather)
    monkeypatch.setattr(Delays, "share", share)
    monkeypatch.setattr(cpu_waiting, "SECONDS_BETWEEN_LOOKS", 0)
    with pytest.raises(StopIteration):
        cpu_waiting._watch("gomp")
    assert there == [0, 0, 1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(("cores", "threads", "size"), [(2, 2, 2), (8, 8, 2), (8, 5, 5), (64, 2, None)])
def test_a_crowd_is_just_large_enough_and_where_it_would_be_huge_there_is_none(
    cores: int, threads: int, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = Mock()
    monkeypatch.setattr(cpu_waiting, "Crowd", crowd)
    monkeypatch.setattr(cpu_waiting.os, "sched_getaffinity", lambda _: range(cores), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    cpu_waiting.gather("gomp")
    # A watcher that an earlier test started may gather a crowd of its own beside a busy program, with its own library.
    gathered = [one for one in crowd.call_args_list if one.args[0] == "gomp"]
    assert gathered == ([] if size is None else [call("gomp", size)])


@needs_libgomp
def test_where_threads_cannot_be_started_there_is_no_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """libgomp would terminate the program."""
    monkeypatch.setattr(cpu_waiting, "Crowd", lambda *_: pytest.fail("gathered"))
    before = threading.active_count()
    start, started = threading.Thread.start, list[threading.Thread]()

    def fails_at_the_second(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fails_at_the_second)
    assert cpu_waiting.gather("gomp") is None
    assert len(started) == 1
    assert threading.active_count() == before


@needs_libgomp
def test_neighbours_are_watched_where_there_are_several_threads(undecided: pytest.MonkeyPatch) -> None:
    watched: list[bool] = []
    undecided.setattr("ppolm.kernels.cpu_threads.watch_neighbours", lambda: watched.append(watch_neighbours()))
    before = torch.get_num_threads()
    try:
        use_threads(1, 512)
        assert watched == [], "one thread waits for nobody"
        use_threads(2, 512)
        assert watched == [True]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", cpu_waiting.DECIDED)
def test_whoever_has_said_how_to_wait_is_left_alone(name: str, undecided: pytest.MonkeyPatch) -> None:
    undecided.setenv(name, "passive")
    assert not watch_neighbours()


def test_other_systems_wait_as_they_do(undecided: pytest.MonkeyPatch, tmp_path: Path) -> None:
    undecided.setattr(cpu_waiting, "MAPS", tmp_path / "none")
    assert loaded_libgomp() is None
    assert not watch_neighbours()
    (tmp_path / "maps").write_text(
        "7f00-7f01 r-xp 0 fe:00 1  /opt/my pytorch/another/libgomp-1a.so.1\n7f02-7f03 rw-p 0 00:00 0\n"
        "7f04-7f05 r-xp 0 fe:00 2  /opt/my pytorch/torch/lib/libgomp.so.1\n"
    )
    undecided.setattr(torch, "__file__", "/opt/my pytorch/torch/__init__.py")
    undecided.setattr(cpu_waiting, "MAPS", tmp_path / "maps")
    assert loaded_libgomp() == "/opt/my pytorch/torch/lib/libgomp.so.1", "torch's own, if several are loaded"
