"""A store of version 1 becomes one of version 2 with every row as it was, whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest
from sqlalchemy import create_engine, inspect, text

from ppolm.data.examples import Rating
from ppolm.data.prompts import Prompt
from ppolm.feedback.connection import store_url
from ppolm.feedback.desk import Desk
from ppolm.feedback.record import Record
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.tables import metadata
from tests.conftest import ROOT
from tests.old_feedback_store import EXPECTED, WAITING, make_old_store, old_rows

KILLED_AT = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, parameters, context, many):
    if sys.argv[2] in statement:
        os.kill(os.getpid(), signal.SIGKILL)

from ppolm.feedback.store import FeedbackStore
FeedbackStore(sys.argv[1])
"""


def version(place: str) -> int:
    engine = create_engine(store_url(place))
    with engine.connect() as connection:
        found = connection.execute(text("SELECT version FROM feedback_schema")).scalar_one()
    engine.dispose()
    return int(found)


def test_every_old_row_stays_and_reads_as_before(place: str) -> None:
    make_old_store(place)
    before = old_rows(place)
    store = FeedbackStore(place, create=False)
    assert version(place) == 2
    assert store.records() == EXPECTED
    assert store.waiting() == [WAITING]
    assert old_rows(place) == before
    assert store.add([Record(EXPECTED[0].judgement, "a")]) == 0  # the same judgement again is still the same
    assert store.add([Record(Rating(Prompt("cat?"), "New.", 1.0))]) == 1
    task = Desk(store, "ann").next()[0]
    assert task.sides == (WAITING.response,)


def test_a_migrated_store_has_the_tables_of_a_new_one(place: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    make_old_store(place)
    FeedbackStore(place).close()
    engine = create_engine(store_url(place))
    found = inspect(engine)
    for table in metadata.tables.values():
        assert {column["name"] for column in found.get_columns(table.name)} == set(table.columns.keys()), table.name
        assert {index.name for index in table.indexes} <= {index["name"] for index in found.get_indexes(table.name)}
    engine.dispose()


@pytest.mark.parametrize("moment", ["COLUMN policy", "COLUMN waits_until", "TABLE feedback_items", "UPDATE feedback_"])
def test_killed_in_the_middle_leaves_the_old_store(place: str, moment: str) -> None:
    make_old_store(place)
    before = old_rows(place)
    killed = subprocess.run([sys.executable, "-c", KILLED_AT, place, moment], cwd=ROOT, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert version(place) == 1
    assert old_rows(place) == before
    assert FeedbackStore(place).records() == EXPECTED
    assert version(place) == 2


def test_many_who_open_an_old_store_at_once_all_succeed(place: str) -> None:
    make_old_store(place)
    start, problems = threading.Barrier(8), []

    def open_it(number: int) -> None:
        start.wait()
        try:
            store = FeedbackStore(place)
            store.add([Record(Rating(Prompt("new?"), f"{number}", 1.0), f"new{number}")])
            store.close()
        except Exception as error:  # whatever it is, the test says so
            problems.append(error)

    threads = [threading.Thread(target=open_it, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    records = FeedbackStore(place).records()
    assert [record for record in records if not record.id.startswith("new")] == EXPECTED
    assert len(records) == len(EXPECTED) + 8
