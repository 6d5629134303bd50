"""The desk: who is asked what next, blind, once, and so that every answer can be taken back."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import event

from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.errors import FeedbackError
from ppolm.feedback.desk import Desk, Progress
from ppolm.feedback.record import REPEAT, SECOND_LOOK, Queued, Record, Source, Wait, now
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Item, Study, create_study
from ppolm.feedback.task import Answer, Task

A, B = Source("run-a", 3, 0, "runs/a/best"), Source("run-b", 5, 1, "runs/b/best")


@pytest.fixture
def store(tmp_path: Path) -> FeedbackStore:
    return FeedbackStore(str(tmp_path / "feedback.db"))


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


# ---- what an answer becomes -----------------------------------------------------------------------------------------


def test_both_sources_the_shuffle_and_all_that_was_said_are_stored(place: str) -> None:
    store = FeedbackStore(place)
    study = create_study(store, Study("s", axes=("kind", "true"), repeats=0), pairs(8))
    desk = Desk(store, "ann", "s")
    shown: Counter[bool] = Counter()
    for answer in ("first", "second", "tie", "both_bad") * 2:
        (task,) = desk.next()
        assert (task.kind, task.axes, task.waits) == ("preference", ("kind", "true"), None)
        shown[task.sides[0].startswith("from a")] += 1
        strength = 3 if answer in ("first", "second") else None
        record = desk.commit(task.id, Answer(answer, strength, {"kind": 7}), seconds=2.5, note="why\0 not")
        judged = record.judgement
        assert isinstance(judged, Preference)
        better = task.sides[1] if answer == "second" else task.sides[0]
        assert (judged.chosen, judged.tie) == (better, answer in ("tie", "both_bad"))
        assert judged.margin == 0, "a margin is in units of the reward; the strength of a preference is not"
        assert record.source == (A if judged.chosen.startswith("from a") else B)
        assert record.rejected_source == (B if judged.chosen.startswith("from a") else A)
        details = record.details
        assert (details.study, details.seconds, details.note, details.strength) == (
            study.id,
            2.5,
            "why\0 not",
            strength,
        )
        assert details.chosen_first == (answer != "second")
        assert (details.both_bad, details.axes) == (answer == "both_bad", {"kind": 7.0})
        assert record in store.records()
    assert set(shown) == {True, False}, "either side comes first, by chance"


def test_the_same_answer_twice_is_one_judgement_and_another_one_is_refused(store: FeedbackStore) -> None:
    create_study(store, Study("s"), pairs(3))
    desk = Desk(store, "ann", "s")
    (task,) = desk.next()
    desk.commit(task.id, "first", seconds=1)
    desk.commit(task.id, "first", seconds=9)
    assert [record.details.seconds for record in store.records()] == [1]
    with pytest.raises(FeedbackError, match="answered before, with another answer"):
        desk.commit(task.id, "second")
    assert len(store.records()) == 1


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("preference", "third"),
        ("preference", 1),
        ("preference", Answer("tie", strength=2)),
        ("preference", Answer("first", strength=4)),
        ("preference", Answer("first", axes={"unknown": 3})),
        ("score", 8),
        ("score", 0.5),
        ("score", float("nan")),
        ("score", "5"),
        ("score", True),
        ("score", Answer(3, axes={"kind": 9})),
        ("thumb", "yes"),
        ("thumb", 1.0),
    ],
)
def test_what_is_no_answer_is_refused(store: FeedbackStore, kind: str, answer: object) -> None:
    items = pairs(1) if kind == "preference" else [Item("p?", ("one",), (A,))]
    create_study(store, Study("s", kind=kind, axes=("kind",)), items)  # type: ignore[arg-type]
    desk = Desk(store, "ann", "s")
    with pytest.raises(FeedbackError, match=r"is no answer|There is no axis"):
        desk.commit(desk.next()[0].id, answer)  # type: ignore[arg-type]
    assert store.records() == []


def test_a_task_cannot_be_answered_for_somebody_else_or_made_up(store: FeedbackStore) -> None:
    create_study(store, Study("s"), pairs(3))
    create_study(store, Study("other"), [Item("else?", ("x", "y"))])
    task = Desk(store, "ann", "s").next()[0].id
    for desk, id_ in (
        (Desk(store, "ben", "s"), task),
        (Desk(store, "ann", "other"), task),
        (Desk(store, "ann", "s"), task[:-1] + ("0" if task[-1] != "0" else "1")),
        (Desk(store, "ann", "s"), ""),
        (Desk(store, "ann", "s"), "' OR 1=1 --"),
        (Desk(store, "ann"), "\0-\ud800"),
    ):
        with pytest.raises(FeedbackError, match="There is no task"):
            desk.commit(id_, "first")
    assert store.records() == []


def test_a_task_names_no_policy_and_no_vote(store: FeedbackStore) -> None:
    create_study(store, Study("s", wanted=2), pairs(1))
    judge_all(Desk(store, "ben", "s"), "second")
    (task,) = Desk(store, "ann", "s").next()
    shown = repr(task)
    assert not any(word in shown for word in ("runs/a", "run-a", "run-b", "ben", "second"))
    assert task == Desk(store, "ann", "s").next()[0]


# ---- which task comes next ------------------------------------------------------------------------------------------


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


# ---- skip and undo --------------------------------------------------------------------------------------------------


def test_skip_and_undo_go_back_step_by_step_within_the_scope(place: str) -> None:
    store = FeedbackStore(place)
    create_study(store, Study("s", repeats=0), pairs(5))
    create_study(store, Study("other"), [Item("else?", ("x", "y"))])
    judge_all(Desk(store, "ann", "other"))
    judge_all(Desk(store, "ben", "other"))
    desk = Desk(store, "ann", "s")
    one = desk.next()[0]
    desk.commit(one.id, "first")
    two = desk.next()[0]
    desk.skip(two.id)
    three = desk.next()[0]
    assert len({one.id, two.id, three.id}) == 3
    desk.commit(three.id, "both_bad")
    assert desk.progress() == Progress(2, 2, 0)
    again = Desk(store, "ann", "s")  # as after a restart
    undone = [again.undo() for _ in range(4)]
    assert [task.id if task else None for task in undone] == [three.id, two.id, one.id, None]
    assert again.progress() == Progress(0, 5, 0)
    assert [record.judgement.annotator for record in store.records()] == ["ann"]
    assert again.next()[0].id == one.id
    again.commit(one.id, "second")


def test_undo_leaves_what_was_imported_alone(store: FeedbackStore) -> None:
    store.ask([Queued("q?", "x")])
    imported = Record(Rating(Prompt("elsewhere?"), "z", 3.0, annotator="ann"))
    store.add([imported])
    desk = Desk(store, "ann")
    assert desk.undo() is None
    desk.commit(desk.next()[0].id, 4)
    assert desk.undo() is not None
    assert store.records() == [imported]


def test_thumbs_and_scores_of_the_queue(place: str) -> None:
    store = FeedbackStore(place)
    store.ask([Queued("q?", text) for text in "xy"])
    thumb = Desk(store, "ann", ask="thumb")
    judged = thumb.commit(thumb.next()[0].id, "down").judgement
    assert isinstance(judged, Thumb)
    assert judged.label is False
    score = Desk(store, "ann")
    assert score.undo() is None, "a desk for scores takes back scores"
    rated = score.commit(score.next()[0].id, -250.5).judgement
    assert isinstance(rated, Rating)
    assert rated.score == -250.5
    assert thumb.next() == score.next() == []


# ---- many at once, and large studies --------------------------------------------------------------------------------


def test_a_hundred_annotators_at_once_lose_and_double_nothing(place: str) -> None:
    store = FeedbackStore(place)
    create_study(store, Study("s", wanted=100), pairs(40))
    store.hold()
    start, problems = threading.Barrier(100), []

    def work(name: str) -> None:
        try:
            desk = Desk(store, name, "s")
            start.wait()
            for _ in range(3):
                (task,) = desk.next()
                desk.commit(task.id, "first")
                desk.commit(task.id, "first")
        except Exception as error:  # whatever it is, the test says so
            problems.append(error)

    threads = [threading.Thread(target=work, args=(f"n{i}",)) for i in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert set(Counter(record.judgement.annotator for record in store.records()).values()) == {3}
    judged = Counter(record.details.item for record in store.records())
    left = Desk(store, "late", "s")
    assert sum(judged.values()) == 300
    assert left.progress().left == 40
    store.close()


def test_the_next_task_of_a_large_study_takes_no_more_queries_than_that_of_a_small_one(store: FeedbackStore) -> None:
    asked: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    needed = []
    for name, size in (("small", 30), ("large", 3000)):
        create_study(store, Study(name, wanted=3), pairs(size))
        asked.clear()
        assert len(Desk(store, "ann", name).next(2)) == 2
        needed.append(len(asked))
    assert needed[0] == needed[1]


def test_a_page_that_begins_asks_the_store_once(store: FeedbackStore) -> None:
    """A hundred people may open their pages in the same moment: one transaction each, and few statements."""
    create_study(store, Study("s", wanted=3), pairs(30))
    asked: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    tasks, progress = Desk(store, "ann").ahead(3, progress=True)
    assert (len(tasks), progress) == (3, Progress(0, 30, 0))
    assert sum(text.startswith("BEGIN") for text in asked) == 1
    assert len(asked) <= 12
    asked.clear()
    more, _ = Desk(store, "ann").ahead(10, [task.id for task in tasks])
    assert len(more) == 10
    assert len(asked) <= 14, "what the page has already is looked up together"
