"""The heartbeat: who is silent for too long is named, by each process's own clock; who says goodbye is not missed."""

from __future__ import annotations

import pytest

from ppolm.ranks import heartbeat
from ppolm.ranks.heartbeat import Heartbeat


class Keys(dict[str, bytes]):
    """A store in one process."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: now[0])
    return now


def test_a_process_is_lost_when_it_says_nothing_new_for_too_long(clock: list[float]) -> None:
    store, seen = Keys(), dict[int, tuple[bytes, float]]()
    watcher = Heartbeat(store, 0, 3, silent=20)
    assert watcher._silent(seen) is None, "others may not have begun"
    for beat in range(15):
        clock[0] += 2
        store.set("beat/1", str(beat))
        if beat < 3:
            store.set("beat/2", str(beat))
        found = watcher._silent(seen)
        assert found == (2 if clock[0] - 106 > 20 else None)


def test_a_process_that_never_begins_is_lost_too(clock: list[float]) -> None:
    seen = dict[int, tuple[bytes, float]]()
    watcher = Heartbeat(Keys(), 0, 2, silent=20)
    assert watcher._silent(seen) is None
    clock[0] += 21
    assert watcher._silent(seen) == 1


def test_a_process_that_has_ended_is_not_missed(clock: list[float]) -> None:
    store, seen = Keys(), dict[int, tuple[bytes, float]]()
    other, watcher = Heartbeat(store, 1, 2, silent=20), Heartbeat(store, 0, 2, silent=20)
    other.stop()
    for _ in range(5):
        assert watcher._silent(seen) is None
        clock[0] += 30
