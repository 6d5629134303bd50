"""Which live runs stand still for people. The store says so; without one, or with a broken one, nobody waits."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select

from ppolm.errors import PpolmError
from ppolm.feedback.record import now
from ppolm.feedback.statements import is_judged
from ppolm.feedback.tables import queue
from ppolm.feedback.transactions import transact
from ppolm.studio.feedback_access import FeedbackAccess

log = logging.getLogger(__name__)
FRESH_SECONDS = 0.5
"""How long an answer holds: every page of runs asks, and each list of many runs."""


@dataclass(frozen=True)
class WaitingRun:
    """A run that waits for judgements."""

    run: str | None
    step: int | None
    left: int
    """Responses that nobody has judged."""
    since: datetime

    def to_dict(self) -> dict[str, Any]:
        """As the owner's pages get it."""
        waited = max(0.0, (now() - self.since).total_seconds())
        return {"run": self.run, "step": self.step, "left": self.left, "seconds": waited}


class WaitingRuns:
    """What the store says, asked now and then."""

    def __init__(self, feedback: FeedbackAccess) -> None:
        self.feedback = feedback
        self._lock = threading.Lock()
        self._known: list[WaitingRun] = []
        self._asked = -FRESH_SECONDS

    def all(self) -> list[WaitingRun]:
        """The runs that wait, the one that has waited longest first."""
        with self._lock:
            if time.monotonic() - self._asked > FRESH_SECONDS:
                self._known = self._ask()
                self._asked = time.monotonic()
            return self._known

    def of(self, run: str) -> WaitingRun | None:
        """What a run waits for, by the name of its folder."""
        return next((one for one in self.all() if one.run == run), None)

    def _ask(self) -> list[WaitingRun]:
        try:
            store = self.feedback.existing()
            return [] if store is None else transact(store.engine, _waiting)
        except PpolmError as error:  # the pages of runs do not depend on the store
            log.debug("the feedback store was not asked who waits: %s", error)
            return []


def _waiting(connection: Connection) -> list[WaitingRun]:
    query = (
        select(queue.c.run, func.max(queue.c.step), func.count(), func.min(queue.c.waits_since))
        .where(queue.c.waits_until > now(), ~is_judged(queue.c.response_id))
        .group_by(queue.c.run)
    )
    found = [WaitingRun(run, step, left, since) for run, step, left, since in connection.execute(query)]
    return sorted(found, key=lambda one: one.since)
