"""The desk: who is asked what next."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from ppolm.feedback.desk import Desk, Progress
from ppolm.feedback.record import REPEAT, SECOND_LOOK, Queued, Source, Wait, now
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Item, Study, create_study
from ppolm.feedback.task import Task
from tests.feedback.desk_cases import A, judge_all, pairs, waiting_for


@pytest.fixture
def store(tmp_path: Path) -> FeedbackStore:
    return FeedbackStore(str(tmp_path / "feedback.db"))


def test_what_a_live_run_waits_for_comes_first_and_the_oldest_wait_before_others(place: str) -> None:
    store = FeedbackStore(place)
    create_study(store, Study("s", "score"), [Item("p?", ("studied",), (A,))])
    store.ask([Queued("old?", "forgotten", Source("old-run", 1, 0))])
    store.ask(waiting_for("young", 4, "yz", 1))
    store.ask(waiting_for("old", 9, "ab", 30))
    desk = Desk(store, "ann")
    tasks = desk.next(10)
    assert [task.sides[0] for task in tasks] == ["a", "b", "y", "z", "studied", "forgotten"]
    assert [task.left for task in tasks] == [6, 5, 4, 3, 2, 1]
    waits = tasks[0].waits
    assert waits is not None
    assert (waits.run, waits.step, round(waits.seconds)) == ("old", 9, 30)
    assert tasks[4].waits is tasks[5].waits is None
    assert desk.progress() == Progress(0, 6, 4)
    assert [task.sides[0] for task in Desk(store, "ann", run="young").next(9)] == ["y", "z"]


def test_a_wait_that_is_over_is_no_wait(place: str) -> None:
    store = FeedbackStore(place)
    past = Wait(now() - timedelta(seconds=60), now() - timedelta(seconds=1))
    store.ask([Queued("live?", "late", Source("run", 1, 0), wait=past)])
    store.ask(waiting_for("now", 1, "a"))
    assert [(task.sides[0], bool(task.waits)) for task in Desk(store, "ann").next(2)] == [("a", True), ("late", False)]
    store.stop_waiting([queued.id for queued in store.waiting()], "another run")
    assert len(store.waiting(live=True)) == 1
    store.stop_waiting([queued.id for queued in store.waiting()], "now")
    assert store.waiting(live=True) == []


def test_pairs_of_a_live_run_release_as_many_responses_as_they_can(place: str) -> None:
    store = FeedbackStore(place)
    store.ask(waiting_for("run", 2, "abcd"))
    desk = Desk(store, "ann", ask="preference", run="run")
    first, second, *others = [(task, desk.commit(task.id, "tie")) for task in iter(lambda: _next(desk), None)]
    assert {*first[0].sides, *second[0].sides} == set("abcd")
    assert store.waiting() == []
    assert len(others) == 4, "then the other pairs, for who has the time"
    assert all(task.waits is None for task, _ in others)
    assert _next(desk) is None


def _next(desk: Desk) -> Task | None:
    tasks = desk.next()
    return tasks[0] if tasks else None


def test_items_with_the_fewest_judgements_come_first_and_no_more_than_wanted(store: FeedbackStore) -> None:
    create_study(store, Study("s", wanted=2, repeats=0), pairs(6))
    ann = [record.details.item for _, record in judge_all(Desk(store, "ann", "s"))]
    assert len(ann) == len(set(ann)) == 6
    ben = Desk(store, "ben", "s")
    for _ in range(3):
        ben.commit(ben.next()[0].id, "first")
    done = {record.details.item for record in store.records() if record.judgement.annotator == "ben"}
    cy = [record.details.item for _, record in judge_all(Desk(store, "cy", "s"))]
    assert set(cy) == set(ann) - done
    assert ben.next() == []


def test_annotators_begin_at_different_items(store: FeedbackStore) -> None:
    create_study(store, Study("s"), pairs(200))
    begun = {Desk(store, f"annotator {i}", "s").next()[0].content for i in range(20)}
    assert len(begun) > 15


def test_repeats_come_later_with_the_sides_swapped(place: str) -> None:
    store = FeedbackStore(place)
    create_study(store, Study("s", repeats=0.1), pairs(60))
    done = judge_all(Desk(store, "ann", "s"))
    where: dict[str | None, tuple[int, Task]] = {}
    repeats = 0
    for number, (task, record) in enumerate(done):
        item = record.details.item
        if record.details.repetition == REPEAT:
            repeats += 1
            before, original = where[item]
            assert number - before > 5
            assert original.sides == task.sides[::-1]
            assert original.id != task.id
        else:
            assert item not in where
            where[item] = (number, task)
    assert 5 <= repeats <= 7
    assert len(where) == 60


def test_gold_questions_are_mixed_in_and_everybody_gets_all(store: FeedbackStore) -> None:
    create_study(store, Study("s", repeats=0), [*pairs(40), *pairs(4, "second")])
    for name in ("ann", "ben"):
        done = judge_all(Desk(store, name, "s"))
        at = [number for number, (_, record) in enumerate(done) if record.details.gold]
        assert len(at) == 4
        assert name == "ben" or at[-1] < 40  # for ben nothing else is left


def test_what_is_before_the_annotator_is_not_offered_again(store: FeedbackStore) -> None:
    create_study(store, Study("s", repeats=0.5), pairs(30))
    desk, shown = Desk(store, "ann", "s"), []
    (current,) = desk.next()
    for _ in range(40):
        following = desk.next(1, exclude=[current.id])
        shown.append(current.id)
        desk.commit(current.id, "first")
        if not following:
            break
        (current,) = following
    assert len(shown) == len(set(shown))
    assert {id_.partition("-")[0] for id_ in shown} == {record.details.item for record in store.records()}


def test_a_second_look_asks_others_and_then_again_and_the_originals_stay(place: str) -> None:
    store = FeedbackStore(place)
    create_study(store, Study("s", wanted=2, repeats=0, second_look=True), pairs(4))
    ann = {record.details.item: task for task, record in judge_all(Desk(store, "ann", "s"))}
    ben = Desk(store, "ben", "s")
    for number in range(4):
        (task,) = ben.next()
        same = task.sides == ann[task.id.partition("-")[0]].sides
        agree = "first" if same else "second"
        ben.commit(task.id, agree if number else {"first": "second", "second": "first"}[agree])
    (disputed,) = {task.id.partition("-")[0] for task in Desk(store, "cy", "s").next(9)}
    assert [task.id.partition("-")[0] for task in Desk(store, "ann", "s").next(9)] == [disputed]
    again = judge_all(Desk(store, "ann", "s"), "tie")
    assert [record.details.repetition for _, record in again] == [SECOND_LOOK]
    assert len(store.records()) == 9
