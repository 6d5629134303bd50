"""One studio: what it looks at and who may look. Every feature gets it, and keeps nothing in globals."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from threading import Event

from ppolm.studio.feedback_access import FeedbackAccess
from ppolm.studio.model_workers import ModelWorkers
from ppolm.studio.visitors import Keys
from ppolm.studio.waiting import WaitingRuns
from ppolm.studio.workspace import Workspace


@dataclass(frozen=True)
class Studio:
    """What the pages are made of."""

    workspace: Workspace
    store: str = "feedback.db"
    """Path or URL of the feedback store; it is made when somebody judges."""
    keys: Keys = field(default_factory=Keys)
    port: int = 0
    host: str = "127.0.0.1"
    """The address it listens on. On another than this machine's own, annotators may come, who only judge."""
    models: ModelWorkers = field(default_factory=ModelWorkers)
    """Models that somebody asked for, in processes of their own; they end with the server."""
    closing: Event = field(default_factory=Event)
    """Set when the server is about to end: open streams then end by themselves."""

    @cached_property
    def feedback(self) -> FeedbackAccess:
        """The feedback store, opened when it is first needed."""
        return FeedbackAccess(self.store)

    @cached_property
    def waiting(self) -> WaitingRuns:
        """The live runs that wait for people."""
        return WaitingRuns(self.feedback)
