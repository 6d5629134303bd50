"""Transactions that are retried when the database is busy, instead of failing."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ppolm.errors import FeedbackError
from ppolm.messages import reason

T = TypeVar("T")
ATTEMPTS = 8
BACK_OFF = 0.05
"""Base of the exponential back-off: the wait is up to BACK_OFF · 2^attempt seconds."""
PASSING_STATES = frozenset({"40001", "40P01", "53300", "55P03", "57P03"})
"""PostgreSQL's codes for: serialisation failure, deadlock, too many connections, lock not available, starting up."""
_jitter = random.Random()  # separate, so that a busy store does not change the global random state


def transact(engine: Engine, work: Callable[[Connection], T], write: bool = False) -> T:
    """Run ``work`` in one transaction, retrying if other transactions got in the way.

    An attempt may fail after its commit has taken effect, so ``work`` must be safe to run twice.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with engine.connect().execution_options(writes=write) as connection, connection.begin():
                return work(connection)
        except (DBAPIError, sqlite3.Error) as error:  # the latter from the PRAGMAs of a new connection
            if attempt == ATTEMPTS or not _passing(error):
                raise FeedbackError(_sentence(engine, error)) from error
        except (SQLAlchemyError, UnicodeDecodeError) as error:  # tables exist but hold other data
            raise FeedbackError(f"Feedback store {shown(engine.url)} is damaged: {reason(error)}.") from error
        time.sleep(_jitter.uniform(0.2, 1.0) * BACK_OFF * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


def _passing(error: DBAPIError | sqlite3.Error) -> bool:
    """Whether a retry may succeed."""
    reason = _reason(error)
    if "database is locked" in reason or "too many clients" in reason:
        return True  # Python 3.10 has no SQLite error codes, and a refused PostgreSQL connection has no code
    if isinstance(error, sqlite3.Error):
        return False
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in PASSING_STATES


def _reason(error: DBAPIError | sqlite3.Error) -> str:
    return " ".join(str(error if isinstance(error, sqlite3.Error) else error.orig).split())


def _sentence(engine: Engine, error: DBAPIError | sqlite3.Error) -> str:
    reason = _reason(error).rstrip(".")[:300]
    if "file is not a database" in reason:
        return f"{shown(engine.url)} is not an SQLite database, and was left alone. Give another file as the store."
    if engine.dialect.name == "sqlite":
        advice = "See whether its folder can be written and the disk has room."
        if _passing(error):
            advice = "Another program keeps it locked; close that and try again."
    else:
        advice = "See whether the server runs and the URL names its user, host and database."
    return f"Feedback store {shown(engine.url)} cannot be used: {reason}. {advice}"


def shown(url: URL) -> str:
    """How messages name a store: its path as given, or its URL without the password."""
    if url.drivername == "sqlite":
        return str(url.database)
    return url.set(drivername=url.drivername.partition("+")[0]).render_as_string(hide_password=True)
