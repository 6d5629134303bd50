"""Opening a store by path or URL, with a look before anything is written."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from ppolm.config.secrets import expand
from ppolm.errors import ConfigError, FeedbackError, NoStoreError
from ppolm.feedback.migrate import migrate
from ppolm.feedback.tables import VERSION, metadata, schema
from ppolm.feedback.transactions import shown, transact
from ppolm.messages import brief

log = logging.getLogger(__name__)
BUSY_SECONDS = 30.0
"""How long SQLite waits for another writer before an attempt counts as failed."""
CONNECT_SECONDS = 10
"""How long a PostgreSQL server may take to answer."""
CREATION_LOCK = 0x7070_6F6C_6D
"""One creator at a time: PostgreSQL's CREATE TABLE IF NOT EXISTS is not safe against another one."""
HOW_TO_MAKE = "`ppolm feedback import FILE --store STORE` and `ppolm train --reward human` make one."


def open_engine(location: str, create: bool) -> Engine:
    """A checked connection to the store at a path or URL; a new store is made only if ``create`` says so."""
    url = store_url(location)
    if url.drivername == "sqlite":
        _check_file(Path(url.database or ""), create)
    try:
        engine = _sqlite_engine(url) if url.drivername == "sqlite" else _postgresql_engine(url)
    except ModuleNotFoundError as error:
        raise FeedbackError(
            f"Feedback store {shown(url)} needs {error.name}, which is not installed. Install ppolm[postgres]."
        ) from error
    version = transact(engine, _read_version)
    if version is None:
        if not create:
            raise NoStoreError(f"There is no feedback store at {shown(url)} yet. {HOW_TO_MAKE}")
        version = transact(engine, _create, write=True)
        _use_write_ahead_log(engine)
    elif isinstance(version, int) and 0 < version < VERSION:
        version = transact(engine, _create, write=True)
    if not isinstance(version, int):
        raise FeedbackError(f"Feedback store {shown(url)} is damaged: its version is {brief(version)}.")
    if version > VERSION:
        raise FeedbackError(
            f"Feedback store {shown(url)} was made by a newer ppolm (its schema is {version}, this ppolm knows "
            f"{VERSION}). Upgrade ppolm."
        )
    return engine


def store_url(location: str) -> URL:
    """The SQLAlchemy URL of a store: a path is an SQLite file."""
    if "://" not in location:
        if not location.strip():
            raise FeedbackError("The feedback store has an empty name. Give a path such as feedback.db, or a URL.")
        return URL.create("sqlite", database=str(Path(location).expanduser()))
    try:
        url = make_url(expand(location))
    except ConfigError as error:
        raise FeedbackError(f"Feedback store {error}") from None
    except (ArgumentError, ValueError):  # what was given may hold a password, and is not repeated
        raise FeedbackError("The URL of the feedback store cannot be read. Write postgresql://user@host/db.") from None
    name = url.drivername.partition("+")[0]
    if name in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if name == "sqlite" and url.database not in (None, "", ":memory:"):
        return url.set(drivername="sqlite")
    raise FeedbackError(
        f"Feedback store {shown(url)} cannot be used: expected a file path or a URL that begins with postgresql://."
    )


def _check_file(path: Path, create: bool) -> None:
    """Look before SQLite does, which would make a new file.

    The file is not opened here: closing it again would drop the locks that other threads hold on it, as POSIX has it,
    and judgements would be lost.
    """
    if len(path.name) > 255 or "\0" in str(path):
        raise FeedbackError(f"Feedback store {brief(str(path))} has a name that no file can have. Give another.")
    if path.is_dir():
        raise FeedbackError(f"Feedback store {path} is a folder. Give a file, such as {path / 'feedback.db'}.")
    if not path.exists() and not create:
        raise NoStoreError(f"There is no feedback store at {path}. {HOW_TO_MAKE}")
    if not path.parent.is_dir():
        raise FeedbackError(f"Feedback store {path} cannot be made: there is no folder {path.parent}. Make it.")


def _sqlite_engine(url: URL) -> Engine:
    # A connection per transaction: opening one is cheap, and a pool would make threads wait for each other twice.
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:  # noqa: ARG001
        connection.isolation_level = None  # the driver would begin transactions too late, see below
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer that first reads and then asks for the lock fails at once when another was quicker; one that takes
        # the lock first waits for its turn.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql_engine(url: URL) -> Engine:
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(CONNECT_SECONDS)})
    return create_engine(url, pool_pre_ping=True)


def _read_version(connection: Connection) -> int | None:
    """The schema's version, or None where a new store may be created."""
    tables = inspect(connection).get_table_names()
    if schema.name in tables:
        return connection.execute(select(schema.c.version)).scalar_one()
    if tables and connection.dialect.name == "sqlite":  # a PostgreSQL database may well be shared, a file is not
        raise FeedbackError(
            f"{shown(connection.engine.url)} is an SQLite database of something else (it holds {tables[0]}), and was "
            "left alone. Give another file as the store."
        )
    return None


def _create(connection: Connection) -> int:
    """Make the tables, or bring older ones up to date, unless somebody else just did."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": CREATION_LOCK})
    found = _read_version(connection)
    if found is not None:
        return migrate(connection, found) if found < VERSION else found
    metadata.create_all(connection)
    connection.execute(insert(schema).values(version=VERSION))
    return VERSION


def _use_write_ahead_log(engine: Engine) -> None:
    """Let readers continue while somebody writes. A property of the file; where unsupported, they take turns."""
    if engine.dialect.name == "sqlite":
        connection = engine.raw_connection()  # outside of a transaction, as SQLite wants it
        try:
            connection.cursor().execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            log.debug("no write-ahead log for %s", shown(engine.url))
        finally:
            connection.close()
