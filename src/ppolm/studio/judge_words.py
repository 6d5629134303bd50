"""What a judging page may say and is told: names, answers and tasks, checked and bounded. Nothing that is not blind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from ppolm.feedback.record import Content
from ppolm.feedback.study import LONGEST_NAME as LONGEST_STUDY
from ppolm.feedback.study import Ask, Study
from ppolm.feedback.task import Answer, Task
from ppolm.messages import brief, is_utf8
from ppolm.studio.answers import BadRequestError
from ppolm.studio.visitors import LONGEST_NAME, Keys, Visitor

ASKS = get_args(Ask)
PLAIN_SCALE = (1.0, 7.0)
"""Of responses in the queue, which belong to no study."""
LONGEST_TEXT = 100_000
"""Characters of a prompt or response that are sent to a page."""
MOST_TURNS = 200
LARGEST_ANSWER = 2_000_000
"""Characters of all tasks that are sent at once; at least one task is."""
MOST_ANSWERS = 50
LONGEST_ID = 400


def annotator_of(visitor: Visitor, keys: Keys, given: Any) -> str:
    """Who judges: an annotator by their key, whatever their page says; the owner by the name that they gave."""
    if visitor.annotator is not None:
        return visitor.annotator
    name = " ".join(given.split()) if isinstance(given, str) else ""
    if not (0 < len(name) <= LONGEST_NAME and name.isprintable() and is_utf8(name)):
        raise BadRequestError(f"Your name as an annotator is {brief(given)}: expected 1 to {LONGEST_NAME} letters.")
    if name in keys.annotators.values():
        raise BadRequestError(f"{brief(name)} is an annotator with a link of their own. Choose another name.")
    return name


def scope_of(body: Mapping[str, Any]) -> tuple[str | None, Ask | None]:
    """The study, and how is asked: what a desk is for."""
    study, ask = body.get("study") or None, body.get("ask") or None
    if study is not None and (not isinstance(study, str) or len(study) > LONGEST_STUDY):
        raise BadRequestError(f"The study is {brief(study)}, expected its id.")
    if ask is not None and ask not in ASKS:
        raise BadRequestError(f"{brief(ask)} is no way to judge. Expected one of {', '.join(ASKS)}.")
    return study, ask


def id_of(value: Any) -> str:
    """The id of a task."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID:
        raise BadRequestError(f"{brief(value)} is not the id of a task.")
    return value


def ids_of(value: Any) -> list[str]:
    """Ids of some tasks."""
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_ANSWERS:
        raise BadRequestError(f"Expected a list of at most {MOST_ANSWERS} tasks.")
    return [id_of(one) for one in value]


def answers_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was answered, each with its task."""
    given = body.get("answers")
    if not isinstance(given, list) or not 0 < len(given) <= MOST_ANSWERS:
        raise BadRequestError(f"Expected a list of 1 to {MOST_ANSWERS} answers.")
    for one in given:
        if not isinstance(one, dict):
            raise BadRequestError(f"{brief(one)} is not an answer to a task.")
        id_of(one.get("task"))
    return given


def answer_of(given: Mapping[str, Any]) -> tuple[Answer, float | None, str | None]:
    """The verdict with all that was said besides, the active seconds and the note; the desk checks their values."""
    verdict: Any = given.get("verdict")
    strength, axes = given.get("strength"), given.get("axes")
    if not isinstance(verdict, str) and not _is_number(verdict):
        raise BadRequestError(f"{brief(verdict)} is no answer.")
    if strength is not None and (not isinstance(strength, int) or isinstance(strength, bool)):
        raise BadRequestError(f"The strength {brief(strength)} is no answer. Expected 1, 2 or 3.")
    if axes is not None and not (isinstance(axes, dict) and all(_is_number(score) for score in axes.values())):
        raise BadRequestError(f"The scores {brief(axes)} are no answer. Expected a number for each axis.")
    seconds: Any = given.get("seconds")
    note = given.get("note")
    if note is not None and not isinstance(note, str):
        raise BadRequestError("The note is no text.")
    return Answer(verdict, strength, axes), float(seconds) if _is_number(seconds) else None, note


def task_json(task: Task) -> dict[str, Any]:
    """A task as the page gets it: no run, no step, no policy; of a live wait only that there is one."""
    return {
        "id": task.id,
        "kind": task.kind,
        "prompt": bounded_content(task.content),
        "sides": [bounded_text(side) for side in task.sides],
        "axes": list(task.axes),
        "scale": list(task.scale or PLAIN_SCALE),
        "study": task.study,
        "live": task.waits is not None,
    }


def as_many_as_fit(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Tasks up to a size; the page asks for the others when it needs them."""
    found: list[dict[str, Any]] = []
    size = 0
    for task in tasks:
        one = task_json(task)
        size += sum(map(len, one["sides"])) + sum(len(turn["text"]) for turn in one["prompt"])
        if found and size > LARGEST_ANSWER:
            break
        found.append(one)
    return found


def bounded_content(content: Content) -> list[dict[str, Any]]:
    """A prompt as turns; one without a role, if it is plain text."""
    if isinstance(content, str):
        return [{"role": None, "text": bounded_text(content)}]
    left, turns = LONGEST_TEXT, []
    for message in content[-MOST_TURNS:]:
        said = message.get("content")
        text = bounded_text(said if isinstance(said, str) else str(said), max(0, left))
        left -= len(text)
        turns.append({"role": bounded_text(str(message.get("role")), 100), "text": text})
    return turns


def bounded_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """Text, cut with a word about it where nobody would read to the end."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]} … (the first {longest:,} of {len(text):,} characters)"


def study_json(study: Study) -> dict[str, Any]:
    """A study as its annotators see it."""
    return {"id": study.id, "name": study.name, "kind": study.kind, "guidelines": study.guidelines}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
