"""Judging by requests: blind, each task stored once, nobody in another's name, and what a live run waits for first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ppolm.feedback.store import FeedbackStore
from ppolm.studio.visitors import Keys
from tests.studio.judging import SECRETS, live_wait, pair_study, single_study
from tests.studio.serving import Client, Served, serving

ANN, BEN = "ann-has-a-long-key-of-her-own", "ben-has-a-long-key-of-his-own"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "feedback.db"


@pytest.fixture
def served(tmp_path: Path, place: Path) -> Iterator[Served]:
    with serving(tmp_path, store=place, keys=Keys(annotators={ANN: "ann", BEN: "ben"})) as running:
        yield running


def tasks(client: Client, count: int = 5, **scope: Any) -> list[dict[str, Any]]:
    answer = client.post("/api/judge/next", {"annotator": "me", "count": count, **scope})
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json["tasks"]
    return found


def give(client: Client, task: dict[str, Any], verdict: Any = "first", **more: Any) -> Any:
    answers = [{"task": task["id"], "verdict": verdict, "seconds": 2.5, **more}]
    ask = None if task["study"] else task["kind"]
    return client.post("/api/judge/answer", {"annotator": "me", "ask": ask, "answers": answers})


def test_without_a_store_there_is_nothing_to_judge_and_none_is_made(served: Served, place: Path) -> None:
    client = served.visitor()
    assert tasks(client) == []
    assert client.get("/api/judge/about").json["studies"] == []
    assert client.get("/api/judge/waiting").json == {"waiting": False, "runs": []}
    assert not place.exists()


def test_a_judgement_holds_all_that_was_said(served: Served, place: Path) -> None:
    single_study(place, "score", axes=("true",))
    client = served.visitor(ANN)
    assert give(client, tasks(client)[0], 6, axes={"true": 7}, note="well").json["refused"] == []
    (record,) = FeedbackStore(str(place)).records()
    assert (record.judgement.annotator, record.verdict, record.details.seconds) == ("ann", 6.0, 2.5)
    assert (record.details.axes, record.details.note) == ({"true": 7.0}, "well")


def test_the_same_answer_sent_again_is_stored_once_and_another_one_is_refused(served: Served, place: Path) -> None:
    pair_study(place)
    client = served.visitor()
    task = tasks(client)[0]
    for _ in range(3):
        assert give(client, task).json == {"stored": [task["id"]], "refused": []}
    assert "Undo that one first" in give(client, task, "second").json["refused"][0]["error"]
    assert len(FeedbackStore(str(place)).records()) == 1


def test_undo_asked_twice_takes_back_one_answer(served: Served, place: Path) -> None:
    pair_study(place)
    client = served.visitor()
    first, second, *_ = tasks(client)
    give(client, first)
    give(client, second)
    assert client.post("/api/judge/last", {"annotator": "me"}).json["task"]["id"] == second["id"]
    for _ in range(2):
        undone = client.post("/api/judge/undo", {"annotator": "me", "task": second["id"]}).json["task"]
        assert undone == second
    (record,) = FeedbackStore(str(place)).records()
    assert record.details.item == first["id"].rpartition("-")[0]


def test_a_skipped_task_is_not_asked_again_until_it_is_taken_back(served: Served, place: Path) -> None:
    pair_study(place, 3)
    client = served.visitor()
    (task, *_) = tasks(client)
    client.post("/api/judge/answer", {"annotator": "me", "answers": [{"task": task["id"], "skip": True}]})
    assert task["id"] not in [one["id"] for one in tasks(client)]
    client.post("/api/judge/undo", {"annotator": "me", "task": task["id"]})
    assert task["id"] in [one["id"] for one in tasks(client)]


def test_nothing_that_is_sent_to_a_judge_names_runs_policies_or_other_people(served: Served, place: Path) -> None:
    pair_study(place, wanted=3)
    live_wait(place)
    for name in ("olga", "peter"):
        client = served.visitor()
        for task in tasks(client, annotator=name, ask="preference"):
            answers = [{"task": task["id"], "verdict": "tie"}]
            client.post("/api/judge/answer", {"annotator": name, "ask": "preference", "answers": answers})
    live_wait(place, run="secret-run-other", prompts=1)
    client = served.visitor(ANN)
    seen = [client.get("/api/judge/about"), client.get("/api/judge/waiting"), client.get("/judge")]
    for ask in (None, "preference", "score"):
        seen.append(client.post("/api/judge/next", {"count": 20, "ask": ask}))
    found = seen[-2].json["tasks"]
    seen += [give(client, found[0]), give(client, found[0], "second"), client.post("/api/judge/last", {})]
    seen += [client.post("/api/judge/undo", {"ask": "preference", "task": found[0]["id"]})]
    for answer in seen:
        assert answer.status == 200
        assert not [secret for secret in SECRETS if secret.encode() in answer.body], answer.body
    assert client.get("/api/judge/waiting").json == {"waiting": True}


def test_what_a_live_run_waits_for_comes_first_and_its_owner_is_told_more(served: Served, place: Path) -> None:
    pair_study(place)
    live_wait(place, count=4)
    client = served.visitor()
    assert [task["live"] for task in tasks(client, 5)] == [True] * 4 + [False]
    (waits,) = client.get("/api/judge/waiting").json["runs"]
    assert (waits["run"], waits["step"], waits["left"]) == ("secret-run-live", 3, 4)
    assert 25 < waits["seconds"] < 300


def test_an_annotator_judges_in_no_other_name_than_their_own(served: Served, place: Path) -> None:
    pair_study(place)
    client = served.visitor(ANN)
    task = tasks(client, annotator="ben")[0]
    answer = {"annotator": "ben", "answers": [{"task": task["id"], "verdict": "first"}]}
    assert client.post("/api/judge/answer", answer).json["stored"] == [task["id"]]
    (record,) = FeedbackStore(str(place)).records()
    assert record.judgement.annotator == "ann"
    other = served.visitor(BEN)
    assert give(other, task).json["refused"], "a task is for one annotator"


@pytest.mark.parametrize("name", ["", "  ", None, 7, "x" * 101, "a\x1bb", "a\u202eb", "\ud800", "ann", ["me"]])
def test_the_owners_name_is_checked(served: Served, place: Path, name: Any) -> None:
    pair_study(place)
    answer = served.visitor().post("/api/judge/next", {"annotator": name})
    assert answer.status == 400
    assert "name" in answer.json["error"] or "link of their own" in answer.json["error"]


@pytest.mark.parametrize(
    "body",
    [
        {"count": 0},
        {"count": 10**9},
        {"count": "x"},
        {"count": True},
        {"exclude": "x"},
        {"exclude": ["x"] * 51},
        {"exclude": [{}]},
        {"ask": "everything"},
        {"study": 7},
        {"study": "nothing"},
        {"study": "../../etc/passwd"},
    ],
)
def test_requests_that_make_no_sense_are_a_sentence(served: Served, place: Path, body: dict[str, Any]) -> None:
    pair_study(place)
    answer = served.visitor().post("/api/judge/next", {"annotator": "me", **body})
    assert answer.status == 400
    assert answer.json["error"]


@pytest.mark.parametrize(
    "answer",
    [
        {"verdict": "third"},
        {"verdict": None},
        {"verdict": True},
        {"verdict": 5},
        {"verdict": ["first"]},
        {"verdict": "first", "strength": 9},
        {"verdict": "first", "strength": "much"},
        {"verdict": "tie", "strength": 1},
        {"verdict": "first", "note": "x" * 5000},
        {"verdict": "first", "note": 5},
        {"verdict": "first", "axes": {"nothing": 1}},
        {"verdict": "first", "axes": "x"},
    ],
)
def test_an_answer_that_is_none_is_refused_and_those_beside_it_are_stored(
    served: Served, place: Path, answer: dict[str, Any]
) -> None:
    pair_study(place)
    client = served.visitor()
    bad, good, *_ = tasks(client)
    answers = [{"task": bad["id"], **answer}, {"task": good["id"], "verdict": "tie"}]
    found = client.post("/api/judge/answer", {"annotator": "me", "answers": answers}).json
    assert found["stored"] == [good["id"]]
    assert [one["task"] for one in found["refused"]] == [bad["id"]]


@pytest.mark.parametrize("seconds", [None, "x", -1, 1e300, True])
def test_a_wrong_clock_loses_no_answer(served: Served, place: Path, seconds: Any) -> None:
    pair_study(place)
    client = served.visitor()
    assert give(client, tasks(client)[0], seconds=seconds).json["refused"] == []


@pytest.mark.parametrize("task", ["", "x", "x-y", "a" * 500, None, {}, "../..", "\0", "%-%"])
def test_ids_that_name_no_task_are_refused(served: Served, place: Path, task: Any) -> None:
    pair_study(place)
    client = served.visitor()
    for path, body in (("answer", {"answers": [{"task": task, "verdict": "tie"}]}), ("undo", {"task": task})):
        answer = client.post(f"/api/judge/{path}", {"annotator": "me", **body})
        assert answer.status == 400 or answer.json["refused"], (path, answer.body)


def test_huge_texts_are_cut_and_say_so(served: Served, place: Path) -> None:
    from ppolm.feedback.study import Item, Study, create_study

    items = [Item("p" * 1_000_000 + str(i), ("a" * 1_000_000, f"b{i}")) for i in range(20)]
    create_study(FeedbackStore(str(place)), Study("Huge"), items)
    answer = served.visitor().post("/api/judge/next", {"annotator": "me", "count": 20})
    assert len(answer.body) < 3_000_000
    assert "of 1,000,000 characters)" in "".join(answer.json["tasks"][0]["sides"])


def test_a_store_that_is_locked_or_gone_is_asked_again_later(served: Served, place: Path) -> None:
    pair_study(place)
    client = served.visitor()
    task = tasks(client)[0]
    place.rename(place.with_suffix(".away"))
    for more in ("-wal", "-shm"):
        if (one := place.with_name(place.name + more)).exists():
            one.rename(place.with_name(f"feedback.away{more}"))
    assert give(client, task).status == 503
    assert client.get("/api/judge/waiting").json["waiting"] is False
    assert not place.exists()
    for one in sorted(place.parent.glob("feedback.away*")):
        one.rename(place.with_name(one.name.replace(".away", ".db")))
    assert give(client, task).json["stored"] == [task["id"]]
