"""A run that waits for people: they see which run and step, any judgement releases it, and it goes on at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from ppolm.cli.main import run as ppolm
from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.errors import FeedbackError
from ppolm.feedback.desk import Desk
from ppolm.feedback.record import Details, Queued, Record, Wait, now
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.task import Task
from ppolm.rewards.human_reward import POLL_SECONDS, HumanReward
from ppolm.rewards.occasion import Occasion

TINY = [
    *("--model-name", "embedded", "--reward", "human", "--max-steps", "2", "--log-to", "--max-new-tokens", "6"),
    *("--batch-size", "4", "--minibatch-size", "4", "--samples-per-prompt", "2", "--max-eval-prompts", "2"),
]


@pytest.fixture
def store(tmp_path: Path) -> FeedbackStore:
    return FeedbackStore(str(tmp_path / "feedback.db"))


@contextmanager
def person(place: str, answer: Callable[[Task], str | float], ask: str = "score") -> Iterator[list[Task]]:
    """Somebody who answers whatever the desk asks while a run waits."""
    seen: list[Task] = []
    gone = threading.Event()

    def work() -> None:
        store = FeedbackStore(place)
        while not gone.wait(0.02):
            desk = Desk(store, "ann", ask=ask)  # type: ignore[arg-type]
            for task in desk.next():
                if task.waits is not None:
                    seen.append(task)
                    desk.commit(task.id, answer(task))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield seen
    finally:
        gone.set()
        thread.join()


def compared(chosen: str, rejected: str, tie: bool = False, both_bad: bool = False, **more: float) -> Record:
    judged = Preference(Prompt("a?"), chosen, rejected, tie or both_bad, annotator=f"{chosen}{rejected}{tie}", **more)
    return Record(judged, details=Details(both_bad=both_bad))


def test_comparisons_are_the_net_share_that_a_response_won(store: FeedbackStore) -> None:
    store.add(
        [
            compared("x", "y"),
            compared("x", "z"),
            compared("x", "v", both_bad=True),
            compared("y", "z", tie=True),
        ]
    )
    human = HumanReward(store, 0)
    scores = human(["a?"] * 4, ["x", "y", "z", "v"])
    assert scores == pytest.approx([(1 + 1 - 1) / 3, (-1 + 0) / 2, (-1 + 0) / 2, -1.0])
    store.add([Record(Rating(Prompt("b?"), text, score)) for text, score in (("p", 1.0), ("q", 5.0))])
    assert human(["a?"], ["v"]) == [3.0 - 2.0], "on the scale of the scores: mean 3, deviation 2"


def test_scores_win_over_thumbs_and_thumbs_over_comparisons(store: FeedbackStore) -> None:
    store.add([compared("x", "y"), Record(Thumb(Prompt("a?"), "x", False))])
    assert HumanReward(store, 0)(["a?", "a?"], ["x", "y"]) == [-1.0, -1.0]
    store.add([Record(Rating(Prompt("a?"), "x", 7.0))])
    assert HumanReward(store, 0)(["a?"], ["x"]) == [7.0]


def test_people_see_which_run_and_step_waits_and_no_longer_once_it_goes_on(store: FeedbackStore) -> None:
    human = HumanReward(store, 60, occasion=Occasion("my-run", 7, "evaluation"))
    with person(store.name, lambda _: "second", "preference") as seen:
        began = time.monotonic()
        scores = human(["a?"] * 3, ["x", "y", "z"])
        assert time.monotonic() - began < human.timeout, "it goes on when all is judged, not when its time is over"
    assert len(set(scores)) > 1
    assert [(task.waits.run, task.waits.step) for task in seen if task.waits] == [("my-run", 7)] * len(seen)
    assert {record.source.purpose for record in store.records()} == {"evaluation"}
    assert {record.rejected_source.run for record in store.records()} == {"my-run"}
    assert store.waiting(live=True) == []


def test_a_run_looks_at_least_once_a_second_and_goes_on_at_the_first_look_after_the_last_judgement(
    store: FeedbackStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    answers = iter(["x", "y", None, None, "z"])  # who is judged while it sleeps

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        text = next(answers)
        if text is not None:
            store.add([Record(Rating(Prompt("a?"), text, 1.0))])

    monkeypatch.setattr("ppolm.rewards.human_reward.time.sleep", sleep)
    assert HumanReward(store, 60)(["a?"] * 3, ["x", "y", "z"]) == [1.0] * 3
    assert slept == [POLL_SECONDS] * 5, "the fifth sleep brings the last judgement, and there is no sixth"
    assert POLL_SECONDS <= 1, "the rest of two seconds is for a machine that has other things to do (bench.human_wait)"


def test_a_run_that_gives_up_waits_no_longer_and_its_responses_stay(store: FeedbackStore) -> None:
    def model(prompts: Any, responses: Any, **_: Any) -> list[float]:
        return [0.0] * len(responses)

    human = HumanReward(store, 0.1, model, Occasion("run", 1))
    human(["a?"], ["x"])
    assert [queued.wait for queued in store.waiting()] == [None]
    broken = HumanReward(store, 0.1, occasion=Occasion("run", 2))
    with pytest.raises(Exception, match="not judged within"):
        broken(["a?"], ["x"])
    (queued,) = store.waiting()
    assert (queued.wait, queued.source.step) == (None, 2)


def test_a_judgement_that_is_taken_back_is_waited_for_again(
    store: FeedbackStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = store.verdicts
    taken_back = [Record(Rating(Prompt("a?"), "x", 1.0, annotator="ann"))]

    def verdicts(ids: object) -> dict[str, list[Record]]:
        if taken_back:
            store.remove(taken_back.pop())
            threading.Timer(0.2, store.add, [[Record(Rating(Prompt("a?"), "x", 2.0))]]).start()
        return asked(ids)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "verdicts", verdicts)
    threading.Timer(0.1, store.add, [list(taken_back)]).start()
    assert HumanReward(store, 30)(["a?"], ["x"]) == [2.0]


def test_looking_whether_people_have_judged_is_one_query(store: FeedbackStore) -> None:
    wait = Wait(now(), now())
    store.ask([Queued("a?", str(i), wait=wait) for i in range(64)])
    ids = [queued.id for queued in store.waiting()]
    asked: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
    assert store.judged(ids) == set()
    assert len([text for text in asked if text.startswith("SELECT")]) == 1


def test_a_store_that_goes_away_while_waiting_is_a_failed_call(
    store: FeedbackStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(ids: object) -> set[str]:
        raise FeedbackError("the server has gone.")

    human, before = HumanReward(store, 30), store.judged
    answers = iter([before, gone])
    monkeypatch.setattr(store, "judged", lambda ids: next(answers)(ids))
    with pytest.raises(Exception, match=r"Reward human: the server has gone\."):
        human(["a?"], ["x"])


@pytest.mark.parametrize("ask", ["score", "preference"])
def test_a_run_without_a_name_ends_because_people_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer: Callable[[Task], str | float] = (lambda task: float(len(task.sides[0]))) if ask == "score" else _longer
    with person("feedback.db", answer, ask) as seen:
        assert ppolm(["train", *TINY, "--eval-every", "1"]) == 0
    (folder,) = Path("runs").iterdir()
    waits = [task.waits for task in seen if task.waits]
    assert {wait.run for wait in waits} == {folder.name}
    records = FeedbackStore("feedback.db").records()
    about = {(record.source.run, record.source.step, record.source.purpose) for record in records}
    expected = {(step, "training") for step in (1, 2)} | {(step, "evaluation") for step in (0, 1, 2)}
    assert about <= {(folder.name, *one) for one in expected}
    assert {(folder.name, 1, "training"), (folder.name, 2, "training"), (folder.name, 0, "evaluation")} <= about
    # A held-out prompt has one answer at first: there is nothing to compare it with, and it is asked for a thumb.
    kinds = {record.kind for record in records}
    assert kinds == ({"scores"} if ask == "score" else {"preferences", "thumbs"})


def _longer(task: Task) -> str:
    if task.kind == "thumb":
        return "up"
    return "first" if len(task.sides[0]) >= len(task.sides[1]) else "second"
