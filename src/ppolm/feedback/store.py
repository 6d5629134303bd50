"""FeedbackStore: stored judgements, and the queue of responses waiting to be judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from ppolm.config.secrets import VARIABLE, is_url
from ppolm.data.examples import LARGEST, in_range
from ppolm.errors import FeedbackError
from ppolm.feedback.connection import open_engine
from ppolm.feedback.record import Kind, Queued, Record
from ppolm.feedback.table_rows import answer_row, judgement_row, queued_of, record_of, response_rows
from ppolm.feedback.tables import judgements, prompts, queue, responses
from ppolm.feedback.transactions import shown, transact
from ppolm.messages import brief

CHUNK = 500
"""Ids per query, since databases limit the number of parameters."""
VERDICTS = ("scores", "thumbs")
"""Kinds that judge a single response."""
NOT_CONTENT = frozenset({"time", "run", "step", "sequence"})
"""Columns that may differ when the same judgement is added again."""
rejected = responses.alias("rejected")


class FeedbackStore:
    """A database of judgements. Safe for concurrent processes and threads, whether they share an object or not."""

    def __init__(self, place: str, create: bool = True) -> None:
        """``place`` is the path of an SQLite file, or a URL such as postgresql://user@host/db."""
        self.engine = open_engine(place, create)
        self.name = place if is_url(place) and VARIABLE.search(place) else shown(self.engine.url)
        """Path, or URL with the password shown as its variable or as asterisks."""

    def close(self) -> None:
        """Close open connections."""
        self.engine.dispose()

    def add(self, records: Sequence[Record]) -> int:
        """Store judgements, all or none, leaving existing ids unchanged; returns the number of new ones."""
        for record in records:
            _check_numbers(record)
            _check_name(record.judgement.annotator, "an annotator")
            _check_name(record.source.run, "a run")
        rows = {record.id: judgement_row(record) for record in records}
        answers = {answer["id"]: answer for record in records for answer in response_rows(record)}

        def work(connection: Connection) -> int:
            known = {row["id"]: row for row in _find(connection, select(judgements), judgements.c.id, rows)}
            for id_, row in known.items():
                if any(row[name] != value for name, value in rows[id_].items() if name not in NOT_CONTENT):
                    raise FeedbackError(
                        f"Judgement {id_} is already in {self.name} and says something else there. Remove its "
                        "judgement_id, so that it counts as a new judgement."
                    )
            _insert_answers(connection, answers)
            new = {id_: row for id_, row in rows.items() if id_ not in known}
            _insert(connection, judgements, new)
            return len(new)

        return transact(self.engine, work, write=True) if rows else 0

    def remove(self, record: Record) -> None:
        """Remove a judgement; if the response was queued, it waits again."""
        transact(self.engine, lambda c: c.execute(delete(judgements).where(judgements.c.id == record.id)), write=True)

    def records(self, kind: Kind | None = None) -> list[Record]:
        """All judgements, or those of one kind, oldest first."""
        query = _select_records().order_by(judgements.c.time, judgements.c.id)
        if kind is not None:
            query = query.where(judgements.c.kind == kind)
        rows = transact(self.engine, lambda connection: connection.execute(query).mappings().all())
        return [record_of(row) for row in rows]

    def compared_by(self, annotator: str) -> set[tuple[str, ...]]:
        """The pairs of responses that an annotator has compared, each as sorted ids."""
        query = select(judgements.c.response_id, judgements.c.rejected_id).where(
            judgements.c.kind == "preferences", judgements.c.annotator == annotator
        )
        rows = transact(self.engine, lambda connection: connection.execute(query).all())
        return {tuple(sorted(str(id_) for id_ in row)) for row in rows}

    def verdicts(self, response_ids: Iterable[str]) -> dict[str, list[Record]]:
        """Scores and thumbs by response id, for those responses that have any."""
        query = _select_records().where(judgements.c.kind.in_(VERDICTS))
        wanted = dict.fromkeys(response_ids)
        rows = transact(self.engine, lambda c: list(_find(c, query, judgements.c.response_id, wanted)))
        found: dict[str, list[Record]] = {}
        for row in rows:
            found.setdefault(row["response_id"], []).append(record_of(row))
        return found

    def score_scale(self) -> tuple[float, float]:
        """Mean and standard deviation of all stored scores; 0 and 1 without scores, deviation 1 if all are equal."""

        def work(connection: Connection) -> tuple[float, float]:
            mean = connection.execute(select(func.avg(judgements.c.score))).scalar()
            if mean is None:
                return 0.0, 1.0
            offset = judgements.c.score - mean
            variance = connection.execute(select(func.avg(offset * offset))).scalar()
            return float(mean), float(variance or 1.0) ** 0.5

        return transact(self.engine, work)

    def ask(self, items: Sequence[Queued]) -> None:
        """Queue responses for judging; one that is already queued keeps its place."""
        rows = {item.id: {"response_id": item.id, "time": item.time, **vars(item.source)} for item in reversed(items)}
        answers = {item.id: answer_row(item.content, item.response) for item in items}
        for item in items:
            _check_name(item.source.run, "a run")

        def work(connection: Connection) -> None:
            _insert_answers(connection, answers)
            _insert(connection, queue, rows)

        if rows:
            transact(self.engine, work, write=True)

    def waiting(self) -> list[Queued]:
        """Queued responses that have neither score nor thumb, in queue order."""
        judged = select(judgements.c.id).where(
            judgements.c.response_id == queue.c.response_id, judgements.c.kind.in_(VERDICTS)
        )
        query = (
            select(queue, prompts.c.content, responses.c.text)
            .join(responses, responses.c.id == queue.c.response_id)
            .join(prompts, prompts.c.id == responses.c.prompt_id)
            .where(~judged.exists())
            .order_by(queue.c.time, queue.c.sequence, queue.c.response_id)
        )
        rows = transact(self.engine, lambda connection: connection.execute(query).mappings().all())
        return [queued_of(row) for row in rows]


def _check_numbers(record: Record) -> None:
    """Refuse numbers that an export could not be loaded with again."""
    for name in ("score", "confidence", "margin"):
        number = getattr(record.judgement, name, 0.0)
        if not in_range(number):
            raise FeedbackError(f"The {name} {brief(number)} cannot be stored: expected a number within ±{LARGEST:g}.")


def _check_name(value: str | None, what: str) -> None:
    """Refuse names that not every database can store, since they are stored as plain text."""
    if value is not None and ("\0" in value or value.encode("utf-8", "ignore").decode() != value):
        raise FeedbackError(f"The name of {what}, {brief(value)}, holds a character that cannot be stored. Change it.")


def _select_records() -> Select[Any]:
    return (
        select(judgements, prompts.c.content, responses.c.text, rejected.c.text.label("rejected_text"))
        .join(responses, responses.c.id == judgements.c.response_id)
        .join(prompts, prompts.c.id == responses.c.prompt_id)
        .outerjoin(rejected, rejected.c.id == judgements.c.rejected_id)
    )


def _find(connection: Connection, query: Select[Any], column: Any, ids: Mapping[str, Any]) -> Iterator[Any]:
    """Rows of a query whose column is one of the ids."""
    wanted = list(ids)
    for start in range(0, len(wanted), CHUNK):
        yield from connection.execute(query.where(column.in_(wanted[start : start + CHUNK]))).mappings()


def _insert(connection: Connection, table: Table, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Insert rows whose primary key is new, in sorted order so that two writers cannot deadlock."""
    if rows:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        statement = dialect.insert(table).on_conflict_do_nothing()
        connection.execute(statement, [dict(rows[key]) for key in sorted(rows)])


def _insert_answers(connection: Connection, answers: Mapping[str, Mapping[str, Any]]) -> None:
    """Insert responses, after the prompts that they refer to."""
    asked = {row["prompt_id"]: {"id": row["prompt_id"], "content": row["content"]} for row in answers.values()}
    _insert(connection, prompts, asked)
    columns = ("id", "prompt_id", "text")
    _insert(connection, responses, {id_: {name: row[name] for name in columns} for id_, row in answers.items()})
