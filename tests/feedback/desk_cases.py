"""What the tests of the desk judge: pairs of two sources, and responses that a run waits for."""

from __future__ import annotations

from datetime import timedelta

from ppolm.feedback.desk import Desk
from ppolm.feedback.record import Queued, Record, Source, Wait, now
from ppolm.feedback.study import Item
from ppolm.feedback.task import Task

A, B = Source("run-a", 3, 0, "runs/a/best"), Source("run-b", 5, 1, "runs/b/best")


def pairs(number: int, gold: str | None = None) -> list[Item]:
    return [Item(f"prompt {gold}{i}?", (f"from a {i}", f"from b {i}"), (A, B), gold) for i in range(number)]


def judge_all(desk: Desk, answer: str = "first") -> list[tuple[Task, Record]]:
    done = []
    while tasks := desk.next():
        done.append((tasks[0], desk.commit(tasks[0].id, answer)))
        assert len(done) < 1000
    return done


def waiting_for(run: str, step: int, texts: str, seconds: float = 0.0) -> list[Queued]:
    since = now() - timedelta(seconds=seconds)
    wait = Wait(since, now() + timedelta(seconds=60))
    return [Queued("live?", text, Source(run, step, i), since, wait) for i, text in enumerate(texts)]
