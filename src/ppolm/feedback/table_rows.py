"""Records as rows of the tables, and back."""

from __future__ import annotations

from typing import Any

from ppolm.data.examples import Judgement, Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.feedback.record import Content, Record, Source, plain_content, prompt_id, response_id


def answer_row(content: Content, text: str) -> dict[str, Any]:
    """A response, with its prompt."""
    plain = plain_content(content)
    return {"id": response_id(plain, text), "prompt_id": prompt_id(plain), "content": plain, "text": str(text)}


def response_rows(record: Record) -> list[dict[str, Any]]:
    """The responses that a judgement is about."""
    judged, content = record.judgement, record.judgement.prompt.content
    texts = (judged.chosen, judged.rejected) if isinstance(judged, Preference) else (judged.completion,)
    return [answer_row(content, text) for text in texts]


def judgement_row(record: Record) -> dict[str, Any]:
    """A judgement as its table has it."""
    judged = record.judgement
    ids = record.response_ids
    return {
        "id": record.id,
        "kind": record.kind,
        "response_id": ids[0],
        "rejected_id": ids[1] if len(ids) == 2 else None,
        "score": float(judged.score) if isinstance(judged, Rating) else None,
        "label": bool(judged.label) if isinstance(judged, Thumb) else None,
        "tie": bool(judged.tie) if isinstance(judged, Preference) else None,
        "margin": float(judged.margin) if isinstance(judged, Preference) else None,
        "confidence": float(judged.confidence),
        "annotator": judged.annotator,
        "time": record.time,
        **vars(record.source),
    }


def record_of(row: Any) -> Record:
    """A judgement as it was stored."""
    return Record(_judgement(row), row["id"], row["time"], source_of(row))


def _judgement(row: Any) -> Judgement:
    prompt, judge = Prompt(row["content"]), {"confidence": row["confidence"], "annotator": row["annotator"]}
    if row["kind"] == "preferences":
        return Preference(prompt, row["text"], row["rejected_text"], row["tie"], margin=row["margin"], **judge)
    if row["kind"] == "scores":
        return Rating(prompt, row["text"], row["score"], **judge)
    return Thumb(prompt, row["text"], row["label"], **judge)


def source_of(row: Any) -> Source:
    """Where a row's response came from."""
    return Source(row["run"], row["step"], row["sequence"])
