"""The heartbeat: who is silent, has failed or keeps the others waiting is named, by each process's own clock; who says
goodbye, computes, or acts for all is left alone."""

from __future__ import annotations

import threading
import time

import pytest

from ppolm.ranks import activity as activity_module
from ppolm.ranks import heartbeat
from ppolm.ranks.activity import ACTS, ENDED, WAITS, WORKS, Activity, Moment
from ppolm.ranks.heartbeat import FAILED_SECONDS, STILL_SECONDS, Heartbeat, standstill

OWN = Moment(WORKS, 0, 0.0)


class Keys(dict[str, bytes]):
    """A store in one process."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def add(self, key: str, amount: int) -> int:
        raise NotImplementedError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: now[0])
    return now


def test_a_process_is_lost_when_it_says_nothing_new_for_too_long(clock: list[float]) -> None:
    store = Keys()
    watcher = Heartbeat(store, 0, 3, silent=20)
    assert watcher.trouble(OWN) is None, "others may not have begun"
    for beat in range(15):
        clock[0] += 2
        store.set("beat/1", f"{beat} {OWN}")
        if beat < 3:
            store.set("beat/2", f"{beat} {OWN}")
        found = watcher.trouble(OWN)
        lost = "process 2 of 3 has not been heard of for 20 s: killed, stopped, or cut off"
        assert found == (lost if clock[0] - 106 > 20 else None)


def test_a_process_that_never_begins_is_lost_too(clock: list[float]) -> None:
    watcher = Heartbeat(Keys(), 0, 2, silent=20)
    assert watcher.trouble(OWN) is None
    clock[0] += 21
    assert "process 1 of 2 has not been heard of" in str(watcher.trouble(OWN))


def test_a_process_that_has_ended_is_not_missed(clock: list[float]) -> None:
    store = Keys()
    Heartbeat(store, 1, 2).stop()
    for _ in range(5):
        assert Heartbeat(store, 0, 2).trouble(OWN) is None
        clock[0] += 30


def test_one_that_has_ended_with_an_error_leaves_the_others_a_moment_to_end_by_themselves(clock: list[float]) -> None:
    store = Keys()
    watcher = Heartbeat(store, 0, 2)
    Heartbeat(store, 1, 2).stop(failed=True)
    assert watcher.trouble(OWN) is None
    clock[0] += FAILED_SECONDS + 1
    assert "process 1 of 2 has ended with an error" in str(watcher.trouble(OWN))


LONG = STILL_SECONDS + 1


@pytest.mark.parametrize(
    ("moments", "named"),
    [
        ([Moment(WAITS, 7, LONG), Moment(WORKS, 6, LONG)], "process 1 of 2"),
        ([Moment(WAITS, 7, LONG), Moment(WORKS, 6, LONG), Moment(WAITS, 6, LONG)], "processes 1, 2 of 3"),
        ([Moment(WORKS, 6, LONG), Moment(WAITS, 7, LONG), Moment(WAITS, 7, LONG)], "process 0 of 3"),
        ([Moment(WAITS, 7, LONG), Moment(ENDED, 0, LONG)], "process 1 of 2"),
        ([Moment(WAITS, 7, LONG), Moment(WORKS, 6, 1.0)], None),  # it computes
        ([Moment(WAITS, 7, LONG), Moment(WORKS, 6, LONG), Moment(WORKS, 6, 1.0)], None),  # that may wait for this
        ([Moment(ACTS, 7, LONG), Moment(WAITS, 7, LONG)], None),  # the first one waits for people
        ([Moment(ACTS, 7, LONG), Moment(WORKS, 6, LONG)], None),
        ([Moment(WAITS, 7, LONG), Moment(WAITS, 7, LONG)], None),  # they send something large
        ([Moment(WORKS, 7, LONG), Moment(WORKS, 7, LONG)], None),  # nobody waits for anybody
    ],
)
def test_a_standstill_is_named_and_work_is_not_mistaken_for_it(moments: list[Moment], named: str | None) -> None:
    found = standstill(dict(enumerate(moments)))
    assert (found is None) == (named is None)
    assert found is None or f"{named} did not come to where the others wait" in found


def test_moments_are_read_as_they_were_written() -> None:
    assert Moment.of(str(Moment(WAITS, 12, 3.25))) == Moment(WAITS, 12, 3.2)


class Watched:
    """An activity that another thread looks at while the main thread does something."""

    def __init__(self) -> None:
        self.activity, self.moments = Activity(), list[Moment]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.moments.append(self.activity.look())

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_a_thread_that_sleeps_is_still_and_one_that_computes_is_not() -> None:
    with Watched() as sleeping:
        time.sleep(1.0)
    assert max(one.still for one in sleeping.moments) > 0.6
    with Watched() as computing:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            pass
    assert max(one.still for one in computing.moments) < 0.5
    assert {one.state for one in (*sleeping.moments, *computing.moments)} == {WORKS}


def test_exchanges_are_counted_and_an_exchange_of_the_library_is_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with Watched() as watched:
        with watched.activity.exchanging():
            time.sleep(0.3)
            with watched.activity.acting():
                time.sleep(0.3)
        monkeypatch.setattr(activity_module, "EXCHANGES", "test_heartbeat.py")  # as if this were torch
        time.sleep(0.3)
    states = list(dict.fromkeys((one.state, one.exchange) for one in watched.moments))
    assert states == [(WAITS, 1), (ACTS, 1)]
    assert watched.moments[-1].state == WAITS
