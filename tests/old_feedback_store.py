"""A feedback store as version 1 made it: its tables and rows, written as SQL."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import create_engine, text

from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.feedback.connection import store_url
from ppolm.feedback.record import Queued, Record, Source, prompt_id, response_id

TABLES = """
CREATE TABLE feedback_prompts (
    id VARCHAR(64) NOT NULL, content TEXT NOT NULL, PRIMARY KEY (id));
CREATE TABLE feedback_schema (
    version INTEGER NOT NULL, PRIMARY KEY (version));
CREATE TABLE feedback_responses (
    id VARCHAR(64) NOT NULL, prompt_id VARCHAR(64) NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (id), FOREIGN KEY(prompt_id) REFERENCES feedback_prompts (id));
CREATE INDEX ix_feedback_responses_prompt_id ON feedback_responses (prompt_id);
CREATE TABLE feedback_judgements (
    id VARCHAR(64) NOT NULL, kind VARCHAR(16) NOT NULL, response_id VARCHAR(64) NOT NULL, rejected_id VARCHAR(64),
    score DOUBLE PRECISION, label BOOLEAN, tie BOOLEAN, margin DOUBLE PRECISION, confidence DOUBLE PRECISION NOT NULL,
    annotator TEXT, time VARCHAR(32) NOT NULL, run TEXT, step INTEGER, sequence INTEGER,
    PRIMARY KEY (id), FOREIGN KEY(response_id) REFERENCES feedback_responses (id),
    FOREIGN KEY(rejected_id) REFERENCES feedback_responses (id));
CREATE INDEX feedback_judgements_of_response ON feedback_judgements (response_id, kind);
CREATE TABLE feedback_queue (
    response_id VARCHAR(64) NOT NULL, time VARCHAR(32) NOT NULL, run TEXT, step INTEGER, sequence INTEGER,
    PRIMARY KEY (response_id), FOREIGN KEY(response_id) REFERENCES feedback_responses (id));
INSERT INTO feedback_schema VALUES (1)
"""
COLUMNS = (
    *("id", "kind", "response_id", "rejected_id", "score", "label", "tie", "margin", "confidence", "annotator"),
    *("time", "run", "step", "sequence"),
)
CHAT = [{"content": "Wer bist du? ☕", "role": "user"}]
NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
TIME = "2026-05-01T12:00:00.000000+00:00"
EXPECTED = [
    Record(Preference(Prompt("cat?"), "An animal.", "A car.", False, 0.7, 0.5, "ann"), "a", NOON),
    Record(Preference(Prompt(CHAT), "A", "B", tie=True), "b", NOON),
    Record(Rating(Prompt("cat?"), "A car.\0", -1.25, annotator="bé"), "c", NOON, Source("my-run", None, 7)),
    Record(Thumb(Prompt("cat?"), "An animal.", True), "d", NOON),
]
"""What its judgements are."""
WAITING = Queued("cat?", "Nobody knows.", Source("my-run", None, 1), NOON)
ROWS: list[tuple[Any, ...]] = [
    ("a", "preferences", ("cat?", "An animal."), ("cat?", "A car."), None, None, False, 0.5, 0.7, "ann", None, None),
    ("b", "preferences", (CHAT, "A"), (CHAT, "B"), None, None, True, 0.0, 1.0, None, None, None),
    ("c", "scores", ("cat?", "A car.\0"), None, -1.25, None, None, None, 1.0, "bé", "my-run", 7),
    ("d", "thumbs", ("cat?", "An animal."), None, None, True, None, None, 1.0, None, None, None),
]


def make_old_store(place: str) -> None:
    """Four judgements of all kinds, and a response that waits."""
    engine = create_engine(store_url(place))
    with engine.begin() as connection:
        for statement in TABLES.split(";\n"):
            connection.execute(text(statement))

        def answer(content: Any, response: str) -> str:
            ids = {"prompt": prompt_id(content), "response": response_id(content, response)}
            plain = {"content": _json(content), "text": _json(response)}
            prompts = "INSERT INTO feedback_prompts VALUES (:prompt, :content) ON CONFLICT DO NOTHING"
            connection.execute(text(prompts), ids | plain)
            responses = "INSERT INTO feedback_responses VALUES (:response, :prompt, :text) ON CONFLICT DO NOTHING"
            connection.execute(text(responses), ids | plain)
            return ids["response"]

        for id_, kind, first, second, score, label, tie, margin, confidence, annotator, run, sequence in ROWS:
            both = answer(*first), None if second is None else answer(*second)
            said = (score, label, tie, margin, confidence, annotator, TIME, run, None, sequence)
            values = dict(zip(COLUMNS, (id_, kind, *both, *said), strict=True))
            names = ", ".join(f":{name}" for name in COLUMNS)
            connection.execute(text(f"INSERT INTO feedback_judgements VALUES ({names})"), values)
        waits = {"id": answer(WAITING.content, WAITING.response), "time": TIME}
        connection.execute(text("INSERT INTO feedback_queue VALUES (:id, :time, 'my-run', NULL, 1)"), waits)
    engine.dispose()


def old_rows(place: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every value of every old column, as the database has it."""
    engine = create_engine(store_url(place))
    queries = {
        "feedback_prompts": "id, content",
        "feedback_responses": "id, prompt_id, text",
        "feedback_judgements": ", ".join(COLUMNS),
        "feedback_queue": "response_id, time, run, step, sequence",
    }
    with engine.connect() as connection:
        found = {
            table: [tuple(row) for row in connection.execute(text(f"SELECT {columns} FROM {table} ORDER BY 1"))]
            for table, columns in queries.items()
        }
    engine.dispose()
    return found


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
