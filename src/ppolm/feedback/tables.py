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

VERSION = 2
"""Raised when a table changes; a store with a higher one is left alone."""


DAMAGED = "The feedback store is damaged, or something else has written into it: take a copy from before"
"""What to say of a row that the store cannot have written."""


class JSONText(TypeDecorator[Any]):
    """Canonical JSON as text: PostgreSQL refuses NUL in plain text, and a sampled response may hold it."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Into the database; None is no value, not JSON's null."""
        return None if value is None else canonical(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        """Out of the database."""
        try:
            return None if value is None else json.loads(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise FeedbackError(f"{DAMAGED} (a text is not as it was written: {reason(error, 80)}).") from None


class UTCTime(TypeDecorator[datetime]):
    """A time in UTC as sortable ISO 8601 text, to the microsecond; SQLite has no type for it."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Into the database."""
        return None if value is None else value.isoformat(timespec="microseconds")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Out of the database."""
        try:
            return None if value is None else datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise FeedbackError(f"{DAMAGED} (a time is {brief(value)}).") from None


def source_columns(prefix: str = "") -> list[Column[Any]]:
    """Where a response was made: the fields of ``Source``, each column beginning with the prefix."""
    kinds: dict[str, Any] = {"run": Text, "step": Integer, "sequence": Integer, "policy": Text, "purpose": String(16)}
    return [Column(prefix + name, kind) for name, kind in kinds.items()]


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
    *source_columns(),
    *source_columns("rejected_"),
    Column("study", String(64)),
    Column("item", String(160)),
    Column("seconds", Double),
    Column("chosen_first", Boolean),
    Column("both_bad", Boolean),
    Column("strength", Integer),
    Column("axes", JSONText),
    Column("note", JSONText),
    Column("repetition", Integer),
    Column("gold", Boolean),
    Index("feedback_judgements_of_response", "response_id", "kind"),
    Index("feedback_judgements_of_rejected", "rejected_id", "kind"),
    Index("feedback_judgements_of_item", "item", "annotator", "repetition"),
    Index("feedback_judgements_of_annotator", "annotator", "study", "repetition", "gold", "item"),
    Index("feedback_judgements_by_time", "annotator", "study", "time"),
)

queue = Table(
    "feedback_queue",
    metadata,
    # Rows stay when a response is judged: the queue is what was asked and has no answer, so undo restores nothing.
    Column("response_id", ForeignKey(responses.c.id), primary_key=True),
    Column("time", UTCTime, nullable=False),
    *source_columns(),
    Column("waits_since", UTCTime),
    Column("waits_until", UTCTime),
    Index("feedback_queue_by_wait", "waits_until"),
    Index("feedback_queue_by_time", "time"),
)

studies = Table(
    "feedback_studies",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", JSONText, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("guidelines", JSONText, nullable=False),
    Column("axes", JSONText, nullable=False),
    Column("lowest", Double, nullable=False),
    Column("highest", Double, nullable=False),
    Column("repeats", Double, nullable=False),
    Column("wanted", Integer, nullable=False),
    Column("second_look", Boolean, nullable=False),
    Column("identical", Integer, nullable=False),
    Column("time", UTCTime, nullable=False),
)

items = Table(
    "feedback_items",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("study", ForeignKey(studies.c.id), nullable=False),
    Column("place", Integer, nullable=False),
    Column("first_id", ForeignKey(responses.c.id), nullable=False),
    Column("second_id", ForeignKey(responses.c.id)),
    *source_columns("first_"),
    *source_columns("second_"),
    Column("gold", String(32)),
    # What its judgements say together, kept with them, so that the next question is found without reading them all.
    Column("judged", Integer, nullable=False),
    Column("disputed", Boolean, nullable=False),
    Index("feedback_items_open", "study", "judged", "place"),
    Index("feedback_items_disputed", "study", "disputed"),
    Index("feedback_items_gold", "study", "gold"),
)

skips = Table(
    "feedback_skips",
    metadata,
    Column("task", String(200), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("annotator", Text, nullable=False),
    Column("study", String(64)),
    Column("item", String(160), nullable=False),
    Column("run", Text),
    Column("repetition", Integer, nullable=False),
    Column("time", UTCTime, nullable=False),
    Index("feedback_skips_of_item", "item", "annotator", "repetition"),
    Index("feedback_skips_of_annotator", "annotator", "time"),
)
