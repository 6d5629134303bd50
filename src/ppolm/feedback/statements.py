"""Statements that several parts of the store need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from ppolm.feedback.tables import judgements, prompts, responses

CHUNK = 500
"""Ids per query: databases bound the number of parameters."""
rejected = responses.alias("rejected")


def select_records() -> Select[Any]:
    """Judgements with their prompts and responses, for ``record_of``."""
    return (
        select(judgements, prompts.c.content, responses.c.text, rejected.c.text.label("rejected_text"))
        .join(responses, responses.c.id == judgements.c.response_id)
        .join(prompts, prompts.c.id == responses.c.prompt_id)
        .outerjoin(rejected, rejected.c.id == judgements.c.rejected_id)
    )


def is_judged(response: Any, kinds: Sequence[str] = ()) -> Any:
    """Whether there is a judgement of a response, or one of some kinds."""
    about = [
        select(judgements.c.id).where(column == response, *([judgements.c.kind.in_(kinds)] if kinds else []))
        for column in (judgements.c.response_id, judgements.c.rejected_id)
    ]
    return or_(about[0].exists(), about[1].exists()) if not kinds or "preferences" in kinds else about[0].exists()


def find_rows(connection: Connection, query: Select[Any], column: Any, ids: Mapping[str, Any]) -> Iterator[Any]:
    """Rows of a query whose column is one of the ids."""
    wanted = list(ids)
    for start in range(0, len(wanted), CHUNK):
        yield from connection.execute(query.where(column.in_(wanted[start : start + CHUNK]))).mappings()


def insert_new(connection: Connection, table: Table, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Insert rows by primary key, except those that are there. Sorted, so that two writers never wait in a circle."""
    if rows:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        statement = dialect.insert(table).on_conflict_do_nothing()
        connection.execute(statement, [dict(rows[key]) for key in sorted(rows)])


def insert_answers(connection: Connection, answers: Mapping[str, Mapping[str, Any]]) -> None:
    """Responses, after the prompts that they refer to."""
    asked = {row["prompt_id"]: {"id": row["prompt_id"], "content": row["content"]} for row in answers.values()}
    insert_new(connection, prompts, asked)
    columns = ("id", "prompt_id", "text")
    insert_new(connection, responses, {id_: {name: row[name] for name in columns} for id_, row in answers.items()})
