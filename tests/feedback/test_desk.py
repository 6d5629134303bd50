"""The desk: what an answer becomes, blind, once, and so that it can be taken back."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import event

from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.errors import FeedbackError
from ppolm.feedback.desk import Desk, Progress
from ppolm.feedback.record import Queued, Record
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Item, Study, create_study
from ppolm.feedback.task import Answer
from tests.feedback.desk_cases import A, B, judge_all, pairs


@pytest.fixture
def store(tmp_path: Path) -> FeedbackStore:
    return FeedbackStore(str(tmp_path / "feedback.db"))


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
