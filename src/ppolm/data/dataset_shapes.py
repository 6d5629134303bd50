"""The row formats of public datasets and their conversion to our columns; no other module knows them.

Every command reads rows through this module, so that a reward model is trained on the same prompts that PPO samples
from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ppolm.errors import DataError

Row = Mapping[str, Any]
TURN = re.compile(r"(?:^|\n\n)(Human|Assistant):[ \t]?")
ROLES = {"Human": "user", "Assistant": "assistant"}
POST = ("subreddit", "title", "post")
"""Fields of a Reddit post in the summarisation data."""


def shape_of(row: Any) -> str | None:
    """The name of the public format that a row is in; None if it has our own columns."""
    if isinstance(row, Mapping):
        return next((name for name, (has_shape, _) in SHAPES.items() if has_shape(row)), None)
    return None


def standard_row(row: Row, where: str) -> Row:
    """The row converted to our own columns; returned unchanged if it already has them."""
    shape = shape_of(row)
    return row if shape is None else SHAPES[shape][1](row, where)


def says(row: Row, column: str) -> bool:
    """Whether the row has a value in this column; an empty spreadsheet cell is no value."""
    value = row.get(column)
    return value is not None and value != "" and value != []


def is_conversation(value: Any) -> bool:
    """Whether a value is a prompt and its answer in one: a list of two or more messages."""
    return isinstance(value, (list, tuple)) and len(value) > 1 and all(isinstance(item, Mapping) for item in value)


# ---- Whole conversations in chosen and rejected (UltraFeedback) -----------------------------------------------------


def _compares_conversations(row: Row) -> bool:
    return is_conversation(row.get("chosen")) and is_conversation(row.get("rejected"))


def _from_conversations(row: Row, where: str) -> Row:
    """The prompt is everything before the last message, which must be the same in both conversations."""
    chosen, rejected = list(row["chosen"]), list(row["rejected"])
    shared, prompt = _said(chosen[:-1]), row.get("prompt")
    if shared != _said(rejected[:-1]):
        raise DataError(f"{where} has conversations in 'chosen' and 'rejected' that differ before their last message.")
    # Often a prompt column repeats the question, as text or as messages; a different question is an error.
    asked = {content for role, content in shared if role == "user" and isinstance(content, str)}
    if says(row, "prompt") and (prompt not in asked if isinstance(prompt, str) else _said(prompt) != shared):
        raise DataError(f"{where} has another 'prompt' than the conversations in 'chosen' and 'rejected' begin with.")
    rest = {name: value for name, value in row.items() if name != "messages"}  # a copy of one of the two
    return {**rest, "prompt": chosen[:-1], "chosen": chosen[-1:], "rejected": rejected[-1:]}


def _said(messages: Any) -> list[tuple[Any, Any]]:
    """Role and content of each message; other keys are not part of the conversation."""
    items = messages if isinstance(messages, (list, tuple)) else ()
    return [(item.get("role"), item.get("content")) for item in items if isinstance(item, Mapping)]


# ---- Transcripts in chosen and rejected (Anthropic HH) --------------------------------------------------------------


def _compares_transcripts(row: Row) -> bool:
    texts = (row.get("chosen"), row.get("rejected"))
    return not says(row, "prompt") and all(
        isinstance(text, str) and text.lstrip().startswith("Human:") and "\n\nAssistant:" in text for text in texts
    )


def _from_transcripts(row: Row, where: str) -> Row:
    sides = {column: _turns(row[column]) for column in ("chosen", "rejected")}
    for column, turns in sides.items():
        if turns[-1]["role"] != "assistant":
            raise DataError(f"{where} has a transcript in {column!r} that ends with the human, expected an answer.")
    return _from_conversations({**row, **sides}, where)


def _turns(transcript: str) -> list[dict[str, str]]:
    """``Human: ... Assistant: ...`` as chat messages."""
    _, *parts = TURN.split(transcript.strip())
    return [
        {"role": ROLES[speaker], "content": text.strip()} for speaker, text in zip(parts[::2], parts[1::2], strict=True)
    ]


# ---- A question and the conversation that begins with it (UltraChat) ------------------------------------------------


def _repeats_its_question(row: Row) -> bool:
    return isinstance(row.get("prompt"), str) and says(row, "prompt") and isinstance(row.get("messages"), (list, tuple))


def _from_question(row: Row, where: str) -> Row:
    """Use the conversation, which contains more than the question."""
    rest = {name: value for name, value in row.items() if name != "prompt"}
    if not says(row, "messages"):
        return {name: value for name, value in row.items() if name != "messages"}
    asked = [str(content).strip() for role, content in _said(row["messages"]) if role == "user"]
    if row["prompt"].strip() not in asked:
        raise DataError(f"{where} has a 'prompt' that nobody asks in its 'messages'. Leave one of the two out.")
    return rest


# ---- Summaries of Reddit posts as OpenAI published their judgements -------------------------------------------------


def _compares_summaries(row: Row) -> bool:
    return isinstance(row.get("info"), Mapping) and isinstance(row.get("summaries"), (list, tuple)) and "choice" in row


def _from_summaries(row: Row, where: str) -> Row:
    texts = [summary.get("text") for summary in row["summaries"] if isinstance(summary, Mapping)]
    if len(texts) != 2 or row["choice"] not in (0, 1):
        found = f"{len(texts)} summaries and the choice {row['choice']!r:.20}"
        raise DataError(f"{where} has {found}, expected two summaries and the choice 0 or 1.")
    chosen = int(row["choice"])
    return {**_about_post(row, where), "chosen": texts[chosen], "rejected": texts[1 - chosen]}


def _rates_summary(row: Row) -> bool:
    summary = row.get("summary")
    return isinstance(row.get("info"), Mapping) and isinstance(summary, Mapping) and "axes" in summary


def _from_rated_summary(row: Row, where: str) -> Row:
    axes = row["summary"]["axes"]
    score = axes.get("overall") if isinstance(axes, Mapping) else None
    if score is None:
        raise DataError(f"{where} has no 'overall' among the axes of its summary, so it judges nothing.")
    return {**_about_post(row, where), "completion": row["summary"].get("text"), "score": score}


def _about_post(row: Row, where: str) -> dict[str, Any]:
    """The post as a prompt in the TL;DR format, and who judged it."""
    info = row["info"]
    missing = [name for name in POST if not isinstance(info.get(name), str)]
    if missing:
        raise DataError(f"{where} has no {missing[0]!r} in its 'info', expected a post with {', '.join(POST)}.")
    rest = {name: value for name, value in row.items() if name not in ("summaries", "summary", "choice")}
    prompt = f"SUBREDDIT: r/{info['subreddit']}\nTITLE: {info['title']}\nPOST: {info['post']}\nTL;DR:"
    return {**rest, "prompt": prompt} | ({"annotator": row["worker"]} if says(row, "worker") else {})


SHAPES: dict[str, tuple[Callable[[Row], bool], Callable[[Row, str], Row]]] = {
    "conversations compared (UltraFeedback)": (_compares_conversations, _from_conversations),
    "transcripts compared (Anthropic HH)": (_compares_transcripts, _from_transcripts),
    "summaries compared (OpenAI TL;DR)": (_compares_summaries, _from_summaries),
    "summaries rated (OpenAI TL;DR axes)": (_rates_summary, _from_rated_summary),
    "question with its conversation (UltraChat)": (_repeats_its_question, _from_question),
}
"""By name: a test whether a row has the format, and its conversion to our columns."""
