"""The feedback store takes only what it can give back, asks without reading everything, and names its damages."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from ppolm.cli.main import run as ppolm
from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.errors import FeedbackError
from ppolm.feedback.label import Labeller
from ppolm.feedback.record import Queued, Record
from ppolm.feedback.store import FeedbackStore


@pytest.fixture
def store(tmp_path: Path) -> FeedbackStore:
    return FeedbackStore(str(tmp_path / "feedback.db"))


def reader(*answers: str) -> Any:
    left: Iterator[str] = iter(answers)
    return lambda _: next(left, "q")


@pytest.mark.parametrize("answer", ["20000000", "-1e7", "1e400", "nan"])
def test_label_takes_no_score_that_export_would_reject(store: FeedbackStore, answer: str) -> None:
    store.ask([Queued("One?", "a")])
    said: list[str] = []
    assert Labeller(store, "ann", read=reader(answer, "7"), say=said.append).run() == 1
    assert any("within ±1e+06" in line for line in said)
    assert [record.judgement.score for record in store.records()] == [7.0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "judged",
    [
        Rating(Prompt("p"), "a", 2e7),
        Rating(Prompt("p"), "a", float("nan")),
        Thumb(Prompt("p"), "a", True, confidence=1e30),
        Preference(Prompt("p"), "a", "b", margin=float("inf")),
    ],
)
def test_the_store_itself_refuses_what_it_could_not_give_back(store: FeedbackStore, judged: Any) -> None:
    with pytest.raises(FeedbackError, match=r"cannot be stored: expected a number within ±1e\+06"):
        store.add([Record(Rating(Prompt("p"), "good", 1.0)), Record(judged)])
    assert store.records() == []


def test_comparing_does_not_read_all_comparisons_for_every_question(store: FeedbackStore) -> None:
    store.ask([Queued("One?", letter) for letter in "abcdef"])
    others = [Record(Preference(Prompt(f"p{i}"), "x", "y", annotator="ben")) for i in range(300)]
    store.add([*others, Record(Preference(Prompt("One?"), "a", "b", annotator="ann"))])
    asked: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
    assert Labeller(store, "ann", "preference", read=reader(*"12u12t"), say=lambda _: None).run() == 4
    compared = [text for text in asked if "annotator = ?" in text and "rejected_id \nFROM feedback_judgements" in text]
    assert compared, "what was compared is asked for"
    assert all("response_id IN" in text for text in compared), "and only of the responses in question"


def test_a_pair_that_was_compared_before_is_not_asked_again_and_undo_asks_again(store: FeedbackStore) -> None:
    store.ask([Queued("One?", letter) for letter in "ab"])
    said: list[str] = []
    assert Labeller(store, "ann", "preference", read=reader("1"), say=said.append).run() == 1
    assert Labeller(store, "ann", "preference", read=reader("1"), say=said.append).run() == 0
    assert Labeller(store, "ben", "preference", read=reader("1", "u", "2"), say=said.append).run() == 1


DAMAGES = [
    "UPDATE feedback_prompts SET content = '{'",
    "UPDATE feedback_prompts SET content = '7'",
    "UPDATE feedback_prompts SET content = '[{}]'",
    "UPDATE feedback_responses SET text = 'null'",
    "UPDATE feedback_responses SET text = x'ff00'",
    "UPDATE feedback_judgements SET time = 'yesterday'",
    "UPDATE feedback_judgements SET time = 7",
    "UPDATE feedback_judgements SET score = NULL, label = NULL",
    "UPDATE feedback_judgements SET score = 'high'",
    "UPDATE feedback_judgements SET confidence = 9e99",
    "UPDATE feedback_judgements SET kind = 'opinions'",
    "UPDATE feedback_queue SET time = ''",
    "DELETE FROM feedback_schema",
    "INSERT INTO feedback_schema VALUES (0), (-1)",
    "DROP TABLE feedback_queue",
    "ALTER TABLE feedback_judgements DROP COLUMN confidence",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_is_an_error_and_no_traceback(
    store: FeedbackStore, tmp_path: Path, capsys: Any, damage: str
) -> None:
    store.add([Record(Rating(Prompt("p"), "a", 1.0)), Record(Thumb(Prompt("p"), "a", True))])
    store.ask([Queued("p", "b")])
    store.close()
    connection = sqlite3.connect(tmp_path / "feedback.db")
    connection.execute(damage)
    connection.commit()
    connection.close()
    place = ["--store", str(tmp_path / "feedback.db")]
    statuses = [ppolm(["feedback", "stats", *place]), ppolm(["feedback", "export", str(tmp_path / "x.jsonl"), *place])]
    assert 1 in statuses
    assert "error: " in capsys.readouterr().err


def test_times_at_the_end_of_the_calendar_are_bad_rows(tmp_path: Path, capsys: Any) -> None:
    row = {"prompt": "p", "completion": "a", "score": 1, "judged_at": "0001-01-01T00:00:00+14:00"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    assert ppolm(["feedback", "import", str(tmp_path / "rows.jsonl"), "--store", str(tmp_path / "s.db")]) == 1
    assert "'judged_at'" in capsys.readouterr().err


def test_an_export_to_a_name_that_no_file_can_have(store: FeedbackStore, tmp_path: Path, capsys: Any) -> None:
    store.add([Record(Rating(Prompt("p"), "a", 1.0))])
    place = ["--store", str(tmp_path / "feedback.db")]
    assert ppolm(["feedback", "export", str(tmp_path / ("x" * 400 + ".jsonl")), *place]) == 1
    assert ppolm(["feedback", "stats", "--store", str(tmp_path / ("x" * 400))]) == 1
    assert capsys.readouterr().err.count("error: ") == 2
