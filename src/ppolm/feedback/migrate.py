"""An older store becomes one of the present version: only additions, in one transaction, so never by halves."""

from __future__ import annotations

from sqlalchemy import Connection, Table, inspect, text, update
from sqlalchemy.schema import CreateColumn

from ppolm.feedback.tables import VERSION, items, judgements, metadata, queue, schema, skips, studies

SOURCE = ("run", "step", "sequence", "policy", "purpose")
NEW_COLUMNS: dict[Table, tuple[str, ...]] = {
    judgements: (
        *("policy", "purpose"),
        *(f"rejected_{name}" for name in SOURCE),
        *("study", "item", "seconds", "chosen_first", "both_bad", "strength", "axes", "note", "repetition", "gold"),
    ),
    queue: ("policy", "purpose", "waits_since", "waits_until"),
}
"""What version 1 lacks. Each may be NULL: old rows stay as they are, and an older ppolm that has it open goes on."""
NEW_TABLES = (studies, items, skips)


def migrate(connection: Connection, version: int) -> int:
    """Bring the tables from ``version`` to the present one; the caller holds the lock and commits."""
    if version == 1:
        for table, names in NEW_COLUMNS.items():
            for name in names:
                column = CreateColumn(table.c[name]).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {column}"))
            there = {index["name"] for index in inspect(connection).get_indexes(table.name)}
            for index in table.indexes:
                if index.name not in there:
                    index.create(connection)
        metadata.create_all(connection, tables=list(NEW_TABLES), checkfirst=False)
        connection.execute(update(schema).values(version=VERSION))
    return VERSION
