"""The tables of the store, the same in SQLite and PostgreSQL."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, Column, Dialect, Double, ForeignKey, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeDecorator

from ppolm.errors import FeedbackError
from ppolm.feedback.record import canonical
from ppolm.messages import brief, reason

VERSION = 1
"""Schema version, incremented when a table changes; a store with a higher one is refused."""


DAMAGED = "The feedback store is damaged, or something else has written into it: take a copy from before"
"""Error message for a row that the store cannot have written."""


class JSONText(TypeDecorator[Any]):
    """Canonical JSON as text: PostgreSQL refuses NUL in plain text, and a sampled response may contain it."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:  # noqa: ARG002
        """Encode a value for the database."""
        return canonical(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        """Decode a value from the database."""
        try:
            return None if value is None else json.loads(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise FeedbackError(f"{DAMAGED} (a text is not as it was written: {reason(error, 80)}).") from None


class UTCTime(TypeDecorator[datetime]):
    """A time in UTC as sortable ISO 8601 text, to the microsecond; SQLite has no type for it."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str:  # noqa: ARG002
        """Encode a value for the database."""
        assert value is not None
        return value.isoformat(timespec="microseconds")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime:  # noqa: ARG002
        """Decode a value from the database."""
        try:
            return datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise FeedbackError(f"{DAMAGED} (a time is {brief(value)}).") from None


metadata = MetaData()

schema = Table("feedback_schema", metadata, Column("version", Integer, primary_key=True, autoincrement=False))

prompts = Table(
    "feedback_prompts",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("content", JSONText, nullable=False),
)

responses = Table(
    "feedback_responses",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("prompt_id", ForeignKey(prompts.c.id), nullable=False, index=True),
    Column("text", JSONText, nullable=False),
)

judgements = Table(
    "feedback_judgements",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("response_id", ForeignKey(responses.c.id), nullable=False),
    Column("rejected_id", ForeignKey(responses.c.id)),
    Column("score", Double),
    Column("label", Boolean),
    Column("tie", Boolean),
    Column("margin", Double),
    Column("confidence", Double, nullable=False),
    Column("annotator", Text),
    Column("time", UTCTime, nullable=False),
    Column("run", Text),
    Column("step", Integer),
    Column("sequence", Integer),
    Index("feedback_judgements_of_response", "response_id", "kind"),
)

queue = Table(
    "feedback_queue",
    metadata,
    # Rows stay when a response is judged: waiting means queued without a judgement, so undo need not restore the row.
    Column("response_id", ForeignKey(responses.c.id), primary_key=True),
    Column("time", UTCTime, nullable=False),
    Column("run", Text),
    Column("step", Integer),
    Column("sequence", Integer),
)
