"""Records as rows of the tables, and back."""

from __future__ import annotations

from typing import Any

from ppolm.data.examples import Judgement, Preference, Rating, Thumb, in_range
from ppolm.data.prompts import Prompt
from ppolm.errors import FeedbackError
from ppolm.feedback.record import (
    Content,
    Details,
    Queued,
    Record,
    Source,
    Wait,
    plain_content,
    prompt_id,
    response_id,
)
from ppolm.feedback.tables import DAMAGED
from ppolm.messages import brief


def answer_row(content: Content, text: str) -> dict[str, Any]:
    """A response, with its prompt."""
    plain = plain_content(content)
    return {"id": response_id(plain, text), "prompt_id": prompt_id(plain), "content": plain, "text": str(text)}


def response_rows(record: Record) -> list[dict[str, Any]]:
    """The responses that a judgement is about."""
    judged = record.judgement
    return [answer_row(judged.prompt.content, text) for text in judged.answers.values()]


def judgement_row(record: Record) -> dict[str, Any]:
    """A judgement as its table has it."""
    judged = record.judgement
    ids = record.response_ids
    return {
        "id": record.id,
        "kind": record.kind,
        "response_id": ids[0],
        "rejected_id": ids[1] if len(ids) == 2 else None,
        **dict.fromkeys(("score", "label", "tie", "margin")),
        **judged.said,
        "confidence": float(judged.confidence),
        "annotator": judged.annotator,
        "time": record.time,
        **source_row(record.source),
        **source_row(record.rejected_source, "rejected_"),
        **_details_row(record.details),
    }


def source_row(source: Source, prefix: str = "") -> dict[str, Any]:
    """Where a response came from, as its columns have it."""
    return {prefix + name: value for name, value in vars(source).items()}


def _details_row(details: Details) -> dict[str, Any]:
    """NULL says no, as in the rows of an older store."""
    row = dict(vars(details))
    axes = None if not details.axes else {name: float(score) for name, score in details.axes.items()}
    return row | {"axes": axes} | {name: row[name] or None for name in ("both_bad", "repetition", "gold")}


def record_of(row: Any) -> Record:
    """A judgement as it was stored."""
    judgement = _judgement(row)
    texts = judgement.answers.values()
    said = {"preferences": ("tie", "margin"), "scores": ("score",), "thumbs": ("label",)}.get(row["kind"], ("kind",))
    numbers = all(_is_number(row[name]) for name in (*said, "confidence"))
    if not (_is_content(judgement.prompt.content) and all(isinstance(text, str) for text in texts) and numbers):
        raise FeedbackError(f"{DAMAGED} (judgement {brief(row['id'])} lacks what its kind needs).")
    return Record(judgement, row["id"], row["time"], source_of(row), source_of(row, "rejected_"), _details_of(row))


def _details_of(row: Any) -> Details:
    said = {name: row[name] for name in Details.__dataclass_fields__}
    axes = said["axes"]
    if axes is not None and not (isinstance(axes, dict) and all(_is_number(score) for score in axes.values())):
        raise FeedbackError(f"{DAMAGED} (the axes of judgement {brief(row['id'])} are {brief(axes)}).")
    flags = {"both_bad": bool(row["both_bad"]), "gold": bool(row["gold"]), "repetition": row["repetition"] or 0}
    return Details(**{**said, **flags})


def _is_content(content: Any) -> bool:
    messages = content if isinstance(content, list) else ()
    good = all(isinstance(one, dict) and {"role", "content"} <= one.keys() for one in messages)
    return isinstance(content, str) or (bool(messages) and good)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and in_range(value)


def queued_of(row: Any) -> Queued:
    """A response that waits, as it was stored."""
    if not _is_content(row["content"]) or not isinstance(row["text"], str):
        raise FeedbackError(f"{DAMAGED} (response {brief(row['response_id'])} in the queue has no text).")
    return Queued(row["content"], row["text"], source_of(row), row["time"], wait_of(row))


def wait_of(row: Any) -> Wait | None:
    """Since when and until when a run waits, if one does."""
    since, until = row["waits_since"], row["waits_until"]
    return None if since is None or until is None else Wait(since, until)


def _judgement(row: Any) -> Judgement:
    prompt, judge = Prompt(row["content"]), {"confidence": row["confidence"], "annotator": row["annotator"]}
    if row["kind"] == "preferences":
        return Preference(prompt, row["text"], row["rejected_text"], row["tie"], margin=row["margin"], **judge)
    if row["kind"] == "scores":
        return Rating(prompt, row["text"], row["score"], **judge)
    return Thumb(prompt, row["text"], row["label"], **judge)


def source_of(row: Any, prefix: str = "") -> Source:
    """Where a row's response came from."""
    return Source(**{name: row[prefix + name] for name in Source.__dataclass_fields__})
