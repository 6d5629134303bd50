"""What an annotator is shown, and what they may answer. Everything about a task follows from its id and who asks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ppolm.data.examples import LARGEST, Judgement, Preference, Rating, Thumb, in_range
from ppolm.data.prompts import Prompt
from ppolm.errors import FeedbackError
from ppolm.feedback.record import REPEAT, SECOND_LOOK, Content, Details, Record, Source, Wait, digest, now
from ppolm.feedback.study import Ask, Study
from ppolm.messages import brief

VERDICTS = ("first", "second", "tie", "both_bad")
THUMBS = {"up": True, "down": False}
STRENGTHS = (1, 2, 3)
LONGEST_NOTE = 4000
MOST_SECONDS = 86_400.0
"""Nobody is active on one question for longer than a day: a clock was wrong."""


@dataclass(frozen=True)
class Waits:
    """The live run that stands still for a task."""

    run: str | None
    step: int | None
    seconds: float
    """How long it has waited."""


@dataclass(frozen=True)
class Task:
    """A question as its annotator sees it. It names no policy, and nobody else's verdict."""

    id: str
    kind: Ask
    content: Content
    sides: tuple[str, ...]
    """One response, or two in the order in which they are shown."""
    axes: tuple[str, ...] = ()
    scale: tuple[float, float] | None = None
    """Lowest and highest score; None: any number."""
    guidelines: str = ""
    study: str | None = None
    """The name of the study it belongs to."""
    waits: Waits | None = None
    left: int = 0
    """Tasks that this annotator has left, with this one."""


@dataclass(frozen=True)
class Answer:
    """What an annotator says."""

    verdict: str | float
    """first, second, tie or both_bad; a score; up or down."""
    strength: int | None = None
    """Of a preference: 1 slightly better, 2 better, 3 much better."""
    axes: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Side:
    """A response with where it came from."""

    id: str
    text: str
    source: Source


@dataclass(frozen=True)
class Question:
    """What a task asks, with all that its annotator does not see."""

    key: str
    """An item of a study, or ids of responses of the queue: what stands in front in the id of a task."""
    kind: Ask
    content: Content
    sides: tuple[Side, ...]
    """In the order in which they are stored."""
    study: Study | None = None
    gold: str | None = None
    repetition: int = 0
    wait: Wait | None = None

    def again(self, repetition: int) -> Question:
        """The same question, asked another time."""
        return replace(self, repetition=repetition)


def task_id(question: Question, annotator: str) -> str:
    """The same for the same question to the same annotator; another one when it is asked again."""
    return f"{question.key}-{_check(question, annotator)}"


def key_of(id_: str) -> str:
    """The question that a task's id names."""
    return id_.rpartition("-")[0]


def matching(question: Question, annotator: str, id_: str) -> Question | None:
    """The question with the repetition that a task's id stands for; None if it is not an id for this annotator."""
    again = (question.again(repetition) for repetition in (0, REPEAT, SECOND_LOOK))
    return next((one for one in again if task_id(one, annotator) == id_), None)


def judgement_id(id_: str) -> str:
    """The id of the judgement that answers a task, so that an answer that is sent twice is stored once."""
    return digest(["judgement", id_])[:32]


def shown_sides(question: Question, annotator: str) -> tuple[Side, ...]:
    """The sides in the order they are shown: by chance per annotator, and the other way round in a repeat."""
    swapped = int(digest(["sides", question.key, annotator])[0], 16) % 2 == 1
    return question.sides[::-1] if swapped != (question.repetition == REPEAT) else question.sides


def task_of(question: Question, annotator: str, left: int = 0) -> Task:
    """What the annotator sees of a question."""
    study, wait = question.study, question.wait
    waits = None
    if wait is not None and wait.until > now():
        source = question.sides[0].source
        waits = Waits(source.run, source.step, max(0.0, (now() - wait.since).total_seconds()))
    return Task(
        id=task_id(question, annotator),
        kind=question.kind,
        content=question.content,
        sides=tuple(side.text for side in shown_sides(question, annotator)),
        axes=study.axes if study else (),
        scale=study.scale if study else None,
        guidelines=study.guidelines if study else "",
        study=study.name if study else None,
        waits=waits,
        left=left,
    )


def answered(
    question: Question, annotator: str, answer: Answer, seconds: float | None = None, note: str | None = None
) -> Record:
    """The judgement that an answer makes."""
    sides = shown_sides(question, annotator)
    judgement, swapped = _judgement(question, sides, annotator, answer.verdict)
    first, *others = sides[::-1] if swapped else sides
    details = Details(
        study=question.study.id if question.study else None,
        item=question.key,
        seconds=_seconds(seconds),
        chosen_first=not swapped if others else None,
        both_bad=answer.verdict == "both_bad",
        strength=_strength(question, answer),
        axes=_axes(question, answer.axes),
        note=_note(note),
        repetition=question.repetition,
        gold=question.gold is not None,
    )
    id_ = judgement_id(task_id(question, annotator))
    return Record(judgement, id_, now(), first.source, others[0].source if others else Source(), details)


def _judgement(
    question: Question, sides: tuple[Side, ...], annotator: str, verdict: str | float
) -> tuple[Judgement, bool]:
    """The judgement, and whether the side that was shown second is the chosen one."""
    prompt, text = Prompt(question.content), sides[0].text
    if question.kind == "preference":
        if verdict not in VERDICTS:
            raise FeedbackError(
                f"{brief(verdict)} is no answer to a comparison. Expected one of {', '.join(VERDICTS)}."
            )
        swapped = verdict == "second"
        chosen, rejected = sides[::-1] if swapped else sides
        tie = verdict in ("tie", "both_bad")
        return Preference(prompt, chosen.text, rejected.text, tie=tie, annotator=annotator), swapped
    if question.kind == "thumb":
        if not isinstance(verdict, str) or verdict not in THUMBS:
            raise FeedbackError(f"{brief(verdict)} is no answer to a thumb. Expected up or down.")
        return Thumb(prompt, text, THUMBS[verdict], annotator=annotator), False
    return Rating(prompt, text, _score(question, verdict, "score"), annotator=annotator), False


def _score(question: Question, value: Any, what: str) -> float:
    lowest, highest = question.study.scale if question.study else (-LARGEST, LARGEST)
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if not (in_range(number) and lowest <= number <= highest):
        raise FeedbackError(
            f"The {what} {brief(value)} is no answer. Expected a number from {lowest:g} to {highest:g}."
        )
    return number


def _strength(question: Question, answer: Answer) -> int | None:
    if answer.strength is None:
        return None
    if question.kind != "preference" or answer.verdict not in ("first", "second") or answer.strength not in STRENGTHS:
        raise FeedbackError(
            f"The strength {brief(answer.strength)} is no answer. Expected 1, 2 or 3, where one response is better."
        )
    return int(answer.strength)


def _axes(question: Question, axes: Mapping[str, float] | None) -> dict[str, float] | None:
    if not axes:
        return None
    known = question.study.axes if question.study else ()
    for name in axes:
        if name not in known:
            raise FeedbackError(f"There is no axis {brief(name)} here. Expected: {', '.join(known) or 'none'}.")
    return {name: _score(question, value, f"score for {brief(name)}") for name, value in axes.items()}


def _seconds(seconds: float | None) -> float | None:
    """Seconds as far as they can be true; a browser's clock is no reason to lose an answer."""
    if seconds is None or isinstance(seconds, bool) or not math.isfinite(seconds) or seconds < 0:
        return None
    return min(float(seconds), MOST_SECONDS)


def _note(note: str | None) -> str | None:
    if note is None or not note.strip():
        return None
    if len(note) > LONGEST_NOTE:
        raise FeedbackError(f"The note has {len(note):,} characters, expected at most {LONGEST_NOTE:,}. Shorten it.")
    return note


def _check(question: Question, annotator: str) -> str:
    return digest([question.key, question.kind, annotator, question.repetition])[:32]
