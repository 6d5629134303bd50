"""Judging by a judge, such as a function or a server, in the place of a person: at the same desk, in its own name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from ppolm.errors import FeedbackError
from ppolm.feedback.desk import MOST_TASKS, Desk
from ppolm.feedback.label import POLL_SECONDS
from ppolm.feedback.record import Content
from ppolm.feedback.task import Task

Score = Callable[[Sequence[Content], Sequence[str]], Sequence[float]]
"""A number for each response to its prompt: the higher, the better."""


def judge_all(desk: Desk, score: Score, follow: bool = False) -> int:
    """Answer what the desk asks until nothing is left; returns the number of judgements saved.

    Of two responses the one with the higher score is preferred, and equal scores are a tie. Where a score is asked for,
    it is the answer. With ``follow`` this waits for more, until Ctrl-C.
    """
    saved = 0
    try:
        while True:
            tasks = desk.next(MOST_TASKS)
            desk.commit_all(dict(zip((task.id for task in tasks), _verdicts(tasks, score), strict=True)))
            saved += len(tasks)
            if not tasks and not follow:
                return saved
            if not tasks:
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:  # all answers so far are already in the store
        return saved


def _verdicts(tasks: Sequence[Task], score: Score) -> list[str | float]:
    """The answers to some tasks, with all their responses scored at once."""
    if any(task.kind == "thumb" for task in tasks):
        raise FeedbackError("A judge has no thumbs: it gives scores, or compares. Ask for a score or a preference.")
    asked = [(task.content, side) for task in tasks for side in task.sides]
    scores = iter(score([content for content, _ in asked], [side for _, side in asked]) if asked else ())
    return [_verdict(*(next(scores) for _ in task.sides)) for task in tasks]


def _verdict(first: float, second: float | None = None) -> str | float:
    if second is None:
        return first
    if math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9):
        return "tie"
    return "first" if first > second else "second"
