"""Judging at the terminal, one response or one pair at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Literal

from ppolm.data.examples import LARGEST, TRUTHS, Judgement, Preference, Rating, Thumb, in_range
from ppolm.data.prompts import Prompt
from ppolm.feedback.record import Content, Queued, Record, prompt_id
from ppolm.feedback.store import FeedbackStore
from ppolm.messages import brief, printable

Ask = Literal["score", "thumb", "preference"]
POLL_SECONDS = 1.0
"""Interval at which to look for new responses when the queue is empty."""
QUESTIONS = {"score": "score (a number)", "thumb": "good? (y/n)", "preference": "which is better? (1/2, t for a tie)"}
COMMANDS = "s skip, u undo, q quit"
THUMBS = TRUTHS | {"y": True, "n": False}


class Labeller:
    """Asks one annotator about every queued response, and saves each answer before asking the next question."""

    def __init__(
        self,
        store: FeedbackStore,
        annotator: str,
        ask: Ask = "score",
        follow: bool = False,
        read: Callable[[str], str] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.store, self.annotator, self.kind, self.follow = store, annotator, ask, follow
        self.read = read or input
        self.say = lambda line: say(printable(line))  # a response may contain terminal control codes
        self.saved: list[Record] = []
        self._skipped: set[tuple[str, ...]] = set()
        # Read once: later answers are tracked by this session. Somebody who judges at two terminals at once may be
        # asked about a pair twice, and both answers are kept.
        self._compared = store.compared_by(annotator) if ask == "preference" else set()

    def run(self) -> int:
        """Ask until the queue is empty or the annotator quits; returns the number of judgements saved."""
        try:
            while self._turn():
                pass
        except (EOFError, KeyboardInterrupt):  # all answers so far are already in the store
            self.say("")
        return len(self.saved)

    def _turn(self) -> bool:
        """Ask one question; returns False when there are no more."""
        open_ = list(self._open())
        if not open_:
            if not self.follow:
                return False
            time.sleep(POLL_SECONDS)
            return True
        shown = open_[0]
        self._show(shown, len(open_))
        while True:
            answer = self.read(f"{QUESTIONS[self.kind]}; {COMMANDS}: ").strip().lower()
            if answer == "q":
                return False
            if answer == "s":
                self._skipped.add(_key(shown))
                return True
            if answer == "u":
                if self._undo():
                    return True
                continue
            judged = self._judgement(shown, answer)
            if judged is not None:
                record = Record(judged, source=shown[0].source)
                self.store.add([record])
                self.saved.append(record)
                self._compared.add(record.item[1:])
                return True
            expected = f" A score is a number within ±{LARGEST:g}." if self.kind == "score" else ""
            self.say(f"{brief(answer)} is not an answer.{expected}")

    def _open(self) -> Iterator[tuple[Queued, ...]]:
        """What is still to be asked, oldest first: responses, or pairs of responses to the same prompt."""
        waiting = self.store.waiting()
        if self.kind != "preference":
            return (item for item in ((queued,) for queued in waiting) if _key(item) not in self._skipped)
        groups: dict[str, list[Queued]] = {}
        for queued in waiting:
            groups.setdefault(prompt_id(queued.content), []).append(queued)
        # Sorted by id, which is as good as random, so that the response sampled first is not always shown first.
        pairs = (pair for group in groups.values() for pair in combinations(sorted(group, key=lambda q: q.id), 2))
        return (pair for pair in pairs if _key(pair) not in self._compared and _key(pair) not in self._skipped)

    def _show(self, shown: tuple[Queued, ...], left: int) -> None:
        source = shown[0].source
        origin = "".join(f", {name} {value}" for name, value in vars(source).items() if value is not None)
        self.say(f"\n── {left} to judge{origin} " + "─" * 20)
        self.say(f"PROMPT\n{readable(shown[0].content)}\n")
        for number, queued in enumerate(shown, 1):
            title = "RESPONSE" if len(shown) == 1 else f"RESPONSE {number}"
            self.say(f"{title}\n{readable(queued.response) or '(empty)'}\n")

    def _judgement(self, shown: tuple[Queued, ...], answer: str) -> Judgement | None:
        prompt, text = Prompt(shown[0].content), shown[0].response
        if self.kind == "score":
            try:
                score = float(answer)
            except ValueError:
                return None
            return Rating(prompt, text, score, annotator=self.annotator) if in_range(score) else None
        if self.kind == "thumb":
            label = THUMBS.get(answer)
            return None if label is None else Thumb(prompt, text, label, annotator=self.annotator)
        if answer not in ("1", "2", "t"):
            return None
        texts = [queued.response for queued in shown]
        chosen, rejected = reversed(texts) if answer == "2" else texts
        return Preference(prompt, chosen, rejected, tie=answer == "t", annotator=self.annotator)

    def _undo(self) -> bool:
        """Undo the last answer of this session, so that it is asked again."""
        if not self.saved:
            self.say("There is nothing to undo.")
            return False
        taken_back = self.saved.pop()
        self.store.remove(taken_back)
        self._compared.discard(taken_back.item[1:])
        self.say("The last judgement is taken back.")
        return True


def readable(content: Content) -> str:
    """Text that is safe to print: a response may contain codes that move the cursor or clear the screen."""
    if not isinstance(content, str):
        content = "\n".join(f"{message['role']}: {message['content']}" for message in content)
    return printable(content)


def _key(shown: tuple[Queued, ...]) -> tuple[str, ...]:
    return tuple(sorted(queued.id for queued in shown))
