"""FeedbackStore: judgements in, judgements out, and the queue of responses that wait for one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, and_, delete, func, select, union, update

from ppolm.config.secrets import VARIABLE, is_url
from ppolm.errors import FeedbackError
from ppolm.feedback.connection import open_engine
from ppolm.feedback.item_counts import recount
from ppolm.feedback.record import Kind, Queued, Record, now
from ppolm.feedback.statements import CHUNK, find_rows, insert_answers, insert_new, is_judged, select_records
from ppolm.feedback.storable import check_record, check_source
from ppolm.feedback.table_rows import answer_row, judgement_row, queued_of, record_of, response_rows, source_row
from ppolm.feedback.tables import judgements, prompts, queue, responses
from ppolm.feedback.transactions import shown, transact

CONTENT = (
    *("kind", "response_id", "rejected_id", "score", "label", "tie", "margin", "confidence", "annotator"),
    *("both_bad", "strength", "axes"),
)
"""Columns that say what was judged, by whom and how; the others may differ when the same judgement comes again."""


class FeedbackStore:
    """All judgements of one place. Safe for many processes and threads at once, each with its own store or shared."""

    def __init__(self, place: str, create: bool = True) -> None:
        """``place`` is the path of an SQLite file, or a URL such as postgresql://user@host/db."""
        self.engine = open_engine(place, create)
        self.name = place if is_url(place) and VARIABLE.search(place) else shown(self.engine.url)
        """Path, or URL without its password: with the name of the variable that holds it, or with asterisks."""

        self._held: sqlite3.Connection | None = None

    def hold(self) -> None:
        """For a program that serves many: SQLite tidies up its log when the last connection closes, so keep one."""
        if self.engine.dialect.name == "sqlite" and self._held is None:
            self._held = sqlite3.connect(str(self.engine.url.database), check_same_thread=False)
            self._held.execute("SELECT version FROM feedback_schema").fetchall()

    def close(self) -> None:
        """Let go of open connections."""
        self.engine.dispose()
        if self._held is not None:
            self._held.close()
            self._held = None

    def add(self, records: Sequence[Record]) -> int:
        """Store judgements, all or none; those whose id is there already are left as they are. How many are new."""
        for record in records:
            check_record(record)
        rows = {record.id: judgement_row(record) for record in records}
        answers = {answer["id"]: answer for record in records for answer in response_rows(record)}

        def work(connection: Connection) -> int:
            known = {row["id"]: row for row in find_rows(connection, select(judgements), judgements.c.id, rows)}
            for id_, row in known.items():
                if any(row[name] != rows[id_][name] for name in CONTENT):
                    raise FeedbackError(
                        f"Judgement {id_} is already in {self.name} and says something else there. Remove its "
                        "judgement_id, so that it counts as a new judgement."
                    )
            insert_answers(connection, answers)
            new = {id_: row for id_, row in rows.items() if id_ not in known}
            insert_new(connection, judgements, new)
            recount(connection, [row["item"] for row in new.values()])
            return len(new)

        return transact(self.engine, work, write=True) if rows else 0

    def remove(self, record: Record) -> None:
        """Take a judgement back; a response that waited for it waits again."""
        self.remove_id(record.id, record.details.item)

    def remove_id(self, id_: str, item: str | None) -> None:
        """The same by the id of the judgement and the item that it was about."""

        def work(connection: Connection) -> None:
            connection.execute(delete(judgements).where(judgements.c.id == id_))
            recount(connection, [item])

        transact(self.engine, work, write=True)

    def records(self, kind: Kind | None = None) -> list[Record]:
        """All judgements, or those of one kind, the oldest first."""
        query = select_records().order_by(judgements.c.time, judgements.c.id)
        if kind is not None:
            query = query.where(judgements.c.kind == kind)
        rows = transact(self.engine, lambda connection: connection.execute(query).mappings().all())
        return [record_of(row) for row in rows]

    def verdicts(self, response_ids: Iterable[str]) -> dict[str, list[Record]]:
        """All judgements of each of these responses that has any: scores, thumbs, and comparisons with others."""
        wanted = dict.fromkeys(response_ids)

        def work(connection: Connection) -> dict[str, list[Record]]:
            found: dict[str, dict[str, Record]] = {}
            for column in (judgements.c.response_id, judgements.c.rejected_id):
                for row in find_rows(connection, select_records(), column, wanted):
                    found.setdefault(row[column.name], {})[row["id"]] = record_of(row)
            return {id_: list(records.values()) for id_, records in found.items()}

        return transact(self.engine, work)

    def judged(self, response_ids: Iterable[str]) -> set[str]:
        """Those of these responses that have any judgement: a short question, to be asked often."""
        wanted = list(dict.fromkeys(response_ids))

        def work(connection: Connection) -> set[str]:
            found: set[str] = set()
            for start in range(0, len(wanted), CHUNK):
                part = wanted[start : start + CHUNK]
                columns = (judgements.c.response_id, judgements.c.rejected_id)
                found.update(connection.execute(union(*(select(c).where(c.in_(part)) for c in columns))).scalars())
            return found

        return transact(self.engine, work)

    def score_scale(self) -> tuple[float, float]:
        """Mean and deviation of all stored scores; 0 and 1 where there are none, deviation 1 where all are equal."""

        def work(connection: Connection) -> tuple[float, float]:
            mean = connection.execute(select(func.avg(judgements.c.score))).scalar()
            if mean is None:
                return 0.0, 1.0
            offset = judgements.c.score - mean
            variance = connection.execute(select(func.avg(offset * offset))).scalar()
            return float(mean), float(variance or 1.0) ** 0.5

        return transact(self.engine, work)

    def ask(self, items: Sequence[Queued]) -> None:
        """Queue responses for judging; one that was asked for before keeps its place.

        A response that a run waits for now carries that run's name and step, whoever asked for it before.
        """
        rows = {item.id: {"response_id": item.id, "time": item.time, **_asked_row(item)} for item in reversed(items)}
        answers = {item.id: answer_row(item.content, item.response) for item in items}
        for item in items:
            check_source(item.source)

        def work(connection: Connection) -> None:
            insert_answers(connection, answers)
            insert_new(connection, queue, rows)
            for item in reversed(items):
                if item.wait is not None:
                    row = update(queue).where(queue.c.response_id == item.id)
                    connection.execute(row.values(**_asked_row(item)))

        if rows:
            transact(self.engine, work, write=True)

    def stop_waiting(self, response_ids: Iterable[str], run: str | None) -> None:
        """A run no longer waits for these responses; what another run waits for stays."""
        wanted = list(dict.fromkeys(response_ids))

        def work(connection: Connection) -> None:
            for start in range(0, len(wanted), CHUNK):
                mine = and_(
                    queue.c.response_id.in_(wanted[start : start + CHUNK]), queue.c.run.is_not_distinct_from(run)
                )
                connection.execute(update(queue).where(mine).values(waits_since=None, waits_until=None))

        if wanted:
            transact(self.engine, work, write=True)

    def waiting(self, live: bool = False, run: str | None = None) -> list[Queued]:
        """Responses that were asked for and have no judgement, in the order of asking.

        With ``live`` only those that a run waits for at this moment; with ``run`` only those of one run.
        """
        query = (
            select(queue, prompts.c.content, responses.c.text)
            .join(responses, responses.c.id == queue.c.response_id)
            .join(prompts, prompts.c.id == responses.c.prompt_id)
            .where(~is_judged(queue.c.response_id))
            .order_by(queue.c.time, queue.c.sequence, queue.c.response_id)
        )
        if live:
            query = query.where(queue.c.waits_until > now())
        if run is not None:
            query = query.where(queue.c.run == run)
        rows = transact(self.engine, lambda connection: connection.execute(query).mappings().all())
        return [queued_of(row) for row in rows]


def _asked_row(item: Queued) -> dict[str, Any]:
    wait = item.wait
    times = {"waits_since": wait.since, "waits_until": wait.until} if wait else {}
    return {**source_row(item.source), **times}
