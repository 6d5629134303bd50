"""Stores with something to judge, for the tests of pages."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from ppolm.feedback.desk import Desk
from ppolm.feedback.record import Queued, Record, Source, Wait, now
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Item, Study, create_study
from tests.studio.serving import wait_until

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


def records(place: Path) -> list[Record]:
    """What is stored."""
    return FeedbackStore(str(place)).records()


def ready(page: Any) -> Any:
    """A page that shows its first task."""
    page.locator(".verdict").first.wait_for()
    return page


def begin(page: Any, name: str = "me") -> Any:
    """The owner's page: it asks for a name once."""
    page.get_by_label("Name").fill(name)
    page.keyboard.press("Enter")
    return ready(page)


def prompt(page: Any) -> str:
    """The prompt that a page shows."""
    text: str = page.locator(".prompt .box-text").inner_text()
    return text


def press(page: Any, key: str) -> None:
    """Press a key, and see the next task at once."""
    texts = page.locator(".texts")
    before = texts.inner_text()
    page.keyboard.press(key)
    wait_until(page, lambda: texts.count() == 0 or texts.inner_text() != before, 5)


def stored(page: Any, place: Path, count: int) -> list[Record]:
    """What is stored, once there are so many judgements."""
    wait_until(page, lambda: len(records(place)) == count)
    return records(place)


def judge_all(place: Path, annotator: str, longer: str = "first", count: int = 1000) -> None:
    """Somebody judges everything there is: of pairs the longer answer is what ``longer`` says, or the other one."""
    desk = Desk(FeedbackStore(str(place)), annotator)
    for _ in range(count):
        for task in (found := desk.next()):
            if task.kind == "preference":
                wanted = len(task.sides[0]) >= len(task.sides[1])
                desk.commit(task.id, "first" if wanted == (longer == "first") else "second", 2.0)
            else:
                desk.commit(task.id, "up" if task.kind == "thumb" else float(1 + len(task.sides[0]) % 7), 2.0)
        if not found:
            return
