"""The store loses no judgement, doubles none, finds each again, and harms no file that is not its own."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import text

from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.errors import FeedbackError
from ppolm.feedback import transactions
from ppolm.feedback.record import Queued, Record, Source, response_id
from ppolm.feedback.store import FeedbackStore
from tests.conftest import ROOT
from tests.feedback_writers import JUDGEMENTS, PROCESSES, THREADS

CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Wer bist du? ☕"}]
CAT = Prompt("What is a cat?")
NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)


def test_every_kind_is_read_back_as_it_was_stored(place: str) -> None:
    records = [
        Record(Preference(CAT, "An animal.", "A car.", margin=0.5, confidence=0.7, annotator="ann"), "a", NOON),
        Record(Preference(Prompt(CHAT), "A", "B", tie=True), "b", NOON + timedelta(microseconds=1)),
        Record(
            Rating(Prompt(CHAT), "A\0 \ud800 é\r\n", -123456.78901234567, annotator="bé"),
            "c",
            NOON + timedelta(hours=1),
        ),
        Record(Thumb(CAT, "", False), "d", NOON + timedelta(hours=2), Source("my-run", 3, 7)),
    ]
    store = FeedbackStore(place)
    assert store.add(records) == 4
    assert FeedbackStore(place).records() == records
    assert FeedbackStore(place).records("thumbs") == records[3:]
    assert store.add([]) == 0


def test_judgement_stored_again_is_still_one(place: str) -> None:
    store = FeedbackStore(place)
    record = Record(Rating(CAT, "An animal.", 4.0, annotator="ann"))
    same = Record(record.judgement, record.id, record.time + timedelta(days=1), Source("later"))
    assert [store.add([record]), store.add([record, record]), store.add([same])] == [1, 0, 0]
    assert store.records() == [record]


def test_id_that_means_something_else_is_refused_and_nothing_of_the_call_is_stored(place: str) -> None:
    store = FeedbackStore(place)
    record = Record(Rating(CAT, "An animal.", 4.0))
    store.add([record])
    with pytest.raises(FeedbackError, match=rf"Judgement {record.id} is already in .* says something else"):
        store.add([Record(Thumb(CAT, "An animal.", True)), Record(Rating(CAT, "An animal.", 5.0), record.id)])
    assert store.records() == [record]


def test_response_is_found_by_its_prompt_and_text(place: str) -> None:
    store = FeedbackStore(place)
    first = Record(Rating(CAT, "An animal.", 4.0, annotator="ann"), time=NOON)
    second = Record(Thumb(CAT, "An animal.", True, annotator="ben"), time=NOON + timedelta(1))
    compared = Record(Preference(CAT, "An animal.", "A car."), time=NOON + timedelta(2))
    store.add([first, second, compared, Record(Rating(Prompt("Else?"), "An animal.", 1.0))])
    ids = [response_id(CAT.content, text) for text in ("An animal.", "A car.", "An animal. ")]
    found = store.verdicts(ids)
    assert list(found) == ids[:2]
    assert sorted(found[ids[0]], key=lambda record: record.time) == [first, second, compared]
    assert found[ids[1]] == [compared]
    assert store.judged(ids) == set(ids[:2])
    messages_of_parquet = [{**message, "name": None} for message in CHAT]
    assert response_id(messages_of_parquet, "x") == response_id(CHAT, "x")


def test_queue_holds_each_response_once_until_it_is_judged(place: str) -> None:
    store = FeedbackStore(place)
    one, two = Queued("a?", "x", Source("run", sequence=0)), Queued(CHAT, "y", Source("run", sequence=1))
    store.ask([one, two, Queued("a?", "x")])
    store.ask([Queued("a?", "x", Source("another run"))])
    assert store.waiting() == [one, two]
    compared = Record(Preference(Prompt("a?"), "z", "x"))
    store.add([compared])
    assert store.waiting() == [two]  # a comparison says something of both sides
    store.remove(compared)
    assert store.waiting() == [one, two]
    thumb = Record(Thumb(Prompt("a?"), "x", True))
    store.add([thumb])
    assert store.waiting() == [two]
    store.ask([one])
    assert store.waiting() == [two]  # it is judged, asking again changes nothing
    store.remove(thumb)
    assert store.waiting() == [one, two]


def test_scale_of_scores(place: str) -> None:
    store = FeedbackStore(place)
    store.add([Record(Thumb(CAT, "x", True))])
    assert store.score_scale() == (0.0, 1.0)
    store.add([Record(Rating(CAT, "x", 4.0))])
    assert store.score_scale() == (4.0, 1.0)
    store.add([Record(Rating(CAT, "y", 1.0)), Record(Rating(CAT, "z", 1.0))])
    assert store.score_scale() == pytest.approx((2.0, 2**0.5))


def test_two_hundred_writers_at_once_lose_and_double_nothing(place: str) -> None:
    """8 processes with 25 threads each; the store does not exist before they come, and each sends everything twice."""
    command = [sys.executable, "-m", "tests.feedback_writers", place]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    store = FeedbackStore(place)
    records = store.records()
    expected = {f"r{p}t{t}n{n}" for p in range(PROCESSES) for t in range(THREADS) for n in range(JUDGEMENTS)}
    expected |= {f"shared{n}" for n in range(JUDGEMENTS)}
    assert Counter(record.id for record in records) == Counter(expected)
    written = Counter(record.judgement.annotator for record in records)
    names = ["all", *(f"{process}-{thread}" for process in range(PROCESSES) for thread in range(THREADS))]
    assert written == Counter(dict.fromkeys(names, JUDGEMENTS))
    assert [queued.content for queued in sorted(store.waiting(), key=lambda q: str(q.content))] == [
        f"prompt {n}" for n in range(JUDGEMENTS)
    ]


def test_threads_may_share_one_store(place: str) -> None:
    store = FeedbackStore(place)
    records = [Record(Rating(CAT, "x", 1.0), f"n{number}") for number in range(40)]
    threads = [threading.Thread(target=store.add, args=([record],)) for record in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {record.id for record in store.records()} == {record.id for record in records}


# ---- places where no store can be -----------------------------------------------------------------------------------


def error_of(place: object, create: bool = True) -> str:
    with pytest.raises(FeedbackError) as caught:
        FeedbackStore(str(place), create)
    return str(caught.value)


def test_file_that_is_no_database_is_left_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "notes.db"
    file.write_text("my notes, which are not a database at all")
    assert "is not an SQLite database, and was left alone" in error_of(file)
    assert file.read_text() == "my notes, which are not a database at all"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.db"]
    file.write_bytes(b"x" * 100_000)
    assert "is not an SQLite database, and was left alone" in error_of(file)
    assert file.read_bytes() == b"x" * 100_000


def test_database_of_another_program_is_left_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "bookmarks.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    assert "an SQLite database of something else (it holds bookmarks)" in error_of(file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["bookmarks.db"]


def test_damaged_store_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "feedback.db"
    FeedbackStore(str(file)).close()
    file.write_bytes(file.read_bytes()[:100] + b"\xff" * 8000)
    assert f"Feedback store {file} cannot be used" in error_of(file)


def test_folders_missing_folders_and_unwritable_places_are_errors_that_name_them(tmp_path: Path) -> None:
    assert f"{tmp_path} is a folder. Give a file, such as {tmp_path / 'feedback.db'}" in error_of(tmp_path)
    assert f"there is no folder {tmp_path / 'absent'}" in error_of(tmp_path / "absent" / "feedback.db")
    assert "empty name" in error_of(" ")
    if Path("/proc/self").is_dir():  # nobody, not even root, can make a file there
        assert "cannot be used: unable to open database file" in error_of("/proc/self/feedback.db")


def test_reading_makes_no_store(tmp_path: Path) -> None:
    assert f"There is no feedback store at {tmp_path / 'typo.db'}" in error_of(tmp_path / "typo.db", create=False)
    assert not list(tmp_path.iterdir())


def test_store_of_a_newer_ppolm_is_refused(place: str) -> None:
    store = FeedbackStore(place)
    with store.engine.connect().execution_options(writes=True) as connection, connection.begin():
        connection.execute(text("UPDATE feedback_schema SET version = 99"))
    assert "made by a newer ppolm (its schema is 99, this ppolm knows 2). Upgrade ppolm." in error_of(place)


def test_store_that_stays_locked_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppolm.feedback.connection.BUSY_SECONDS", 0.01)
    monkeypatch.setattr(transactions, "BACK_OFF", 0.0001)
    store = FeedbackStore(str(tmp_path / "feedback.db"))
    blocker = sqlite3.connect(tmp_path / "feedback.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    record = Record(Rating(CAT, "x", 1.0))
    with pytest.raises(FeedbackError, match="Another program keeps it locked"):
        store.add([record])
    blocker.execute("ROLLBACK")
    blocker.close()
    assert store.add([record]) == 1


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://me:secret@127.0.0.1:9/db", "See whether the server runs"),
        ("mysql://me:secret@host/db", "expected a file path or a URL that begins with postgresql://"),
        ("sqlite://", "expected a file path"),
        ("://secret", "cannot be read"),
    ],
)
def test_unusable_url_is_an_error_without_its_password(url: str, message: str) -> None:
    error = error_of(url)
    assert message in error
    assert "secret" not in error


def test_missing_driver_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "needs psycopg, which is not installed. Install ppolm[postgres]." in error_of("postgresql://me@host/db")


def test_forms_of_a_url_mean_the_same_store(postgres_url: str, tmp_path: Path) -> None:
    for begin in ("postgresql://", "postgres://", "postgresql+psycopg://"):
        assert FeedbackStore(begin + postgres_url.partition("://")[2]).name.startswith("postgresql://tester@")
    FeedbackStore(f"sqlite:///{tmp_path}/feedback.db")
    assert FeedbackStore(str(tmp_path / "feedback.db"), create=False).records() == []


def test_names_that_a_database_cannot_hold_are_refused(tmp_path: Path) -> None:
    store = FeedbackStore(str(tmp_path / "feedback.db"))
    for name in ("a\0b", "\ud800"):
        with pytest.raises(FeedbackError, match="holds a character that cannot be stored"):
            store.add([Record(Rating(CAT, "x", 1.0, annotator=name))])
