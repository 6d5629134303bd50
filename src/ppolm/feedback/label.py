"""Judging at the terminal: one response, or two, at a time."""

from __future__ import annotations

import time
from collections.abc import Callable

from ppolm.data.examples import LARGEST, TRUTHS, in_range
from ppolm.feedback.desk import Desk
from ppolm.feedback.record import Content, Record
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Ask
from ppolm.feedback.task import Answer, Task
from ppolm.messages import brief, printable

POLL_SECONDS = 0.5
"""How often to look for new responses when nothing is left."""
QUESTIONS = {
    "score": "score (a number)",
    "thumb": "good? (y/n)",
    "preference": "which is better? (1/2, t for a tie, b if both are bad)",
}
COMMANDS = "s skip, u undo, q quit"
THUMBS = TRUTHS | {"y": True, "n": False}
PREFERENCES = {"1": "first", "2": "second", "t": "tie", "b": "both_bad"}


class Labeller:
    """Asks one annotator what their desk asks, and saves each answer before it asks the next question."""

    def __init__(
        self,
        store: FeedbackStore,
        annotator: str,
        ask: Ask | None = None,
        follow: bool = False,
        read: Callable[[str], str] | None = None,
        say: Callable[[str], None] = print,
        study: str | None = None,
        run: str | None = None,
    ) -> None:
        self.desk, self.follow = Desk(store, annotator, study, ask, run), follow
        self.read = read or input
        self.say = lambda line: say(printable(line))  # a response may hold a terminal's control codes
        self.saved: dict[str, Record] = {}
        """What this session has stored and not taken back, by the id of its task."""
        self._guidelines = ""

    def run(self) -> int:
        """Ask until nothing waits or the annotator leaves. How many judgements were saved."""
        try:
            while self._turn():
                pass
        except (EOFError, KeyboardInterrupt):  # whatever was answered is already in the store
            self.say("")
        return len(self.saved)

    def _turn(self) -> bool:
        """One question; False when there are no more."""
        tasks = self.desk.next()
        if not tasks:
            if not self.follow:
                return False
            time.sleep(POLL_SECONDS)
            return True
        (task,) = tasks
        self._show(task)
        began = time.monotonic()
        while True:
            typed = self.read(f"{_question(task)}; {COMMANDS}: ").strip().lower()
            if typed == "q":
                return False
            if typed == "s":
                self.desk.skip(task.id)
                return True
            if typed == "u":
                if self._undo():
                    return True
                continue
            answer = _answer(task, typed)
            if answer is not None:
                answer = self._with_axes(task, answer)
                self.saved[task.id] = self.desk.commit(task.id, answer, time.monotonic() - began)
                return True
            self.say(f"{brief(typed)} is not an answer.{_expected(task)}")

    def _with_axes(self, task: Task, answer: Answer) -> Answer:
        """Ask for the axes of a study too; an empty line leaves one out."""
        axes: dict[str, float] = {}
        for axis in task.axes:
            while typed := self.read(f"  {printable(axis)}, Enter for none: ").strip():
                score = _number(task, typed)
                if score is not None:
                    axes[axis] = score
                    break
                self.say(f"{brief(typed)} is not an answer.{_expected(task, 'score')}")
        return Answer(answer.verdict, axes=axes or None)

    def _show(self, task: Task) -> None:
        waits = f", a run has waited {task.waits.seconds:.0f} s for this" if task.waits else ""
        self.say(f"\n── {task.left} to judge{waits} " + "─" * 20)
        if task.guidelines != self._guidelines:
            self._guidelines = task.guidelines
            self.say(f"GUIDELINES\n{readable(task.guidelines)}\n")
        self.say(f"PROMPT\n{readable(task.content)}\n")
        for number, text in enumerate(task.sides, 1):
            title = "RESPONSE" if len(task.sides) == 1 else f"RESPONSE {number}"
            self.say(f"{title}\n{readable(text) or '(empty)'}\n")

    def _undo(self) -> bool:
        """Take back the last answer or skip, so that it is asked again."""
        task = self.desk.undo()
        if task is None:
            self.say("There is nothing to undo.")
            return False
        judged = self.saved.pop(task.id, None)
        self.say("The last judgement is taken back." if judged else "The last answer is taken back.")
        return True


def _question(task: Task) -> str:
    if task.kind == "score" and task.scale is not None:
        return f"score ({task.scale[0]:g} to {task.scale[1]:g})"
    return QUESTIONS[task.kind]


def _answer(task: Task, typed: str) -> Answer | None:
    """What was typed, if it is an answer to the task."""
    if task.kind == "preference":
        return Answer(PREFERENCES[typed]) if typed in PREFERENCES else None
    if task.kind == "thumb":
        label = THUMBS.get(typed)
        return None if label is None else Answer("up" if label else "down")
    score = _number(task, typed)
    return None if score is None else Answer(score)


def _number(task: Task, typed: str) -> float | None:
    try:
        number = float(typed)
    except ValueError:
        return None
    lowest, highest = task.scale or (-LARGEST, LARGEST)
    return number if in_range(number) and lowest <= number <= highest else None


def _expected(task: Task, kind: str | None = None) -> str:
    if (kind or task.kind) != "score":
        return ""
    within = f"within ±{LARGEST:g}" if task.scale is None else f"from {task.scale[0]:g} to {task.scale[1]:g}"
    return f" A score is a number {within}."


def readable(content: Content) -> str:
    """Text for a terminal: a response may hold codes that move its cursor or clear it."""
    if not isinstance(content, str):
        content = "\n".join(f"{message['role']}: {message['content']}" for message in content)
    return printable(content)
