"""The feedback store as the pages use it: opened once, never made by merely looking."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from ppolm.errors import FeedbackError, NoStoreError
from ppolm.feedback.connection import store_url
from ppolm.feedback.record import Record
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.tables import judgements
from ppolm.feedback.transactions import transact


class FeedbackAccess:
    """One store for all requests of a studio."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.writing = threading.Lock()
        """Writers of this process take turns here: SQLite's own way of waiting is neither fair nor quick."""
        self._lock = threading.Lock()
        self._store: FeedbackStore | None = None
        self._records: tuple[Any, list[Record]] = (None, [])

    def existing(self) -> FeedbackStore | None:
        """The store, or None where there is none yet; raises if it cannot be read."""
        with self._lock:
            if self._store is not None and self._is_gone():
                self._store.close()
                self._store = None
            if self._store is None:
                try:
                    found = FeedbackStore(self.place, create=False)
                except NoStoreError:
                    return None
                found.hold()
                self._store = found
            return self._store

    def store(self) -> FeedbackStore:
        """The store; raises where there is none."""
        found = self.existing()
        if found is None:
            raise NoStoreError(
                "There is nothing to judge yet. Make a study, or start a run with --reward human, and it appears here."
            )
        return found

    def records(self) -> list[Record]:
        """All judgements, the oldest first; read again only if there are others than before."""
        store = self.store()
        query = select(func.count(), func.max(judgements.c.time), func.min(judgements.c.id), func.max(judgements.c.id))
        mark = (id(store), *transact(store.engine, lambda connection: connection.execute(query).one()))
        with self._lock:
            known = self._records
        if known[0] != mark:
            known = (mark, store.records())
            with self._lock:
                self._records = known
        return known[1]

    def _is_gone(self) -> bool:
        """Whether its file was removed, or another one stands in its place: a connection would make an empty one."""
        url = store_url(self.place)
        return url.drivername == "sqlite" and not Path(url.database or "").is_file()


def is_passing(error: FeedbackError) -> bool:
    """Whether the store could not be reached, and the same may work later; else what was asked of it is wrong."""
    return isinstance(error.__cause__, (SQLAlchemyError, sqlite3.Error, OSError))
