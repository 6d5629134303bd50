"""Stores with something to judge, for the tests of pages."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from ppolm.feedback.record import Queued, Source, Wait, now
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Item, Study, create_study

SECRETS = ("secret-run", "runs/secret", "hidden-policy", "olga", "peter")
"""Names that no judging page may be sent: of runs, policies and other annotators."""


def source(side: str, number: int) -> Source:
    """Where a response came from, which annotators must not learn."""
    return Source(run=f"secret-run-{side}", step=40, sequence=number, policy=f"hidden-policy-{side}")


def pairs(count: int) -> list[Item]:
    """Items to compare: the first response is by policy a and longer, the second by policy b."""
    texts = [(f"The answer to {i} is a good and long one.", f"Answer {i}: short.") for i in range(count)]
    return [Item(f"Question {i}?", texts[i], (source("a", i), source("b", i))) for i in range(count)]


def pair_study(place: Path | str, count: int = 30, name: str = "Pairs", **settings: Any) -> Study:
    """A store with a study of comparisons."""
    study = Study(name, guidelines=f"Guidelines of {name}.", **settings)
    return create_study(FeedbackStore(str(place)), study, pairs(count))


def single_study(place: Path | str, kind: Any, count: int = 10, **settings: Any) -> Study:
    """A store with a study of single responses."""
    items = [Item(f"Question {i}?", (f"Answer {i}.",), (source("a", i),)) for i in range(count)]
    return create_study(FeedbackStore(str(place)), Study(f"By {kind}", kind=kind, **settings), items)


def live_wait(place: Path | str, count: int = 4, run: str = "secret-run-live", prompts: int = 2) -> list[Queued]:
    """Responses that a live run waits for."""
    began = now() - timedelta(seconds=30)
    wait = Wait(began, began + timedelta(hours=1))
    asked = [
        Queued(f"Live question {i % prompts}?", f"Live answer {i}.", Source(run, 3, i, None, "training"), began, wait)
        for i in range(count)
    ]
    FeedbackStore(str(place)).ask(asked)
    return asked
