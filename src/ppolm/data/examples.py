"""Training examples from people: demonstrations, preferences, scores and thumbs, each from a checked data row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ppolm.data.dataset_shapes import says, standard_row
from ppolm.data.prompts import Prompt, as_prompt
from ppolm.errors import DataError
from ppolm.messages import brief, is_utf8


@dataclass(frozen=True)
class Demonstration:
    """A prompt and the answer to imitate."""

    prompt: Prompt
    completion: str

    @property
    def answers(self) -> dict[str, str]:
        """Its answer, by column."""
        return {"completion": self.completion}


@dataclass(frozen=True)
class Preference:
    """A prompt and two answers, of which people preferred the first, or neither if it is a tie."""

    prompt: Prompt
    chosen: str
    rejected: str
    tie: bool = False
    confidence: float = 1.0
    """Weight of this judgement relative to the others."""
    margin: float = 0.0
    """How far the chosen answer's score should exceed the other's."""
    annotator: str | None = None

    @property
    def answers(self) -> dict[str, str]:
        """Its two answers, by column."""
        return {"chosen": self.chosen, "rejected": self.rejected}

    @property
    def said(self) -> dict[str, Any]:
        """The judgement, by column."""
        return {"tie": bool(self.tie), "margin": float(self.margin)}


@dataclass(frozen=True)
class Rating:
    """A prompt, an answer, and the score that people gave it, on any scale."""

    prompt: Prompt
    completion: str
    score: float
    confidence: float = 1.0
    annotator: str | None = None

    @property
    def answers(self) -> dict[str, str]:
        """Its answer, by column."""
        return {"completion": self.completion}

    @property
    def said(self) -> dict[str, Any]:
        """The judgement, by column."""
        return {"score": float(self.score)}


@dataclass(frozen=True)
class Thumb:
    """A prompt, an answer, and whether people liked it."""

    prompt: Prompt
    completion: str
    label: bool
    confidence: float = 1.0
    annotator: str | None = None

    @property
    def answers(self) -> dict[str, str]:
        """Its answer, by column."""
        return {"completion": self.completion}

    @property
    def said(self) -> dict[str, Any]:
        """The judgement, by column."""
        return {"label": bool(self.label)}


Judgement = Preference | Rating | Thumb
"""What a reward model can learn from."""

Example = Prompt | Demonstration | Judgement
"""Any supported kind of row."""

KINDS = {
    Preference: "preferences (prompt, chosen, rejected)",
    Rating: "scores (prompt, completion, score)",
    Thumb: "thumbs (prompt, completion, label)",
    Demonstration: "demonstrations (prompt, completion)",
    Prompt: "prompts (prompt)",
}
"""The kinds of rows and their columns, richest first."""


def as_example(row: Any, where: str) -> Example:
    """The richest kind of example that the row's columns allow."""
    if not isinstance(row, Mapping):
        return as_prompt(row, where)
    row = standard_row(row, where)
    if says(row, "chosen") or says(row, "rejected"):
        return as_preference(row, where)
    if "completion" in row or _ends_in_answer(row):  # a score of the prompt, such as its votes, judges no answer
        if says(row, "score"):
            return as_rating(row, where)
        if says(row, "label"):
            return as_thumb(row, where)
    if says(row, "completion") or _ends_in_answer(row):
        return as_demonstration(row, where)
    return as_prompt(row, where)


def as_judgement(row: Any, where: str) -> Judgement:
    """A preference, a score or a thumb."""
    example = as_example(row, where)
    if isinstance(example, (Preference, Rating, Thumb)):
        return example
    raise DataError(
        f"{where} holds no judgement: expected chosen and rejected, or completion with score or label. "
        f"It has: {_found(row)}."
    )


def as_demonstration(row: Any, where: str) -> Demonstration:
    """A prompt with its completion, or a conversation that ends in an answer."""
    row = _standard(row, where)
    if isinstance(row, Mapping) and TRUTHS.get(str(row.get("label")).strip().lower()) is False:
        raise DataError(
            f"{where} shows an answer that was judged bad (its 'label' is {brief(row['label'])}): a model would learn "
            "to give it. Let --skip-bad-rows leave out such rows, or remove the column if it means something else."
        )
    return Demonstration(as_prompt(row, where), _completion(row, where))


def as_preference(row: Any, where: str) -> Preference:
    """Two answers to a prompt, or two conversations that differ only in their last answer."""
    row = _standard(row, where)
    chosen, rejected = _answer(row, "chosen", where), _answer(row, "rejected", where)
    tie = _truth(row, "tie", where, default=False)
    if chosen == rejected and not tie:
        raise DataError(f"{where} prefers a text to itself: 'chosen' and 'rejected' are the same. Remove the row.")
    margin = _weight(row, "margin", where, default=0.0)
    return Preference(as_prompt(row, where), chosen, rejected, tie, margin=margin, **_judge(row, where))


def as_rating(row: Any, where: str) -> Rating:
    """A score for an answer."""
    completion, score = _completion(row, where), _number(row, "score", where)
    return Rating(as_prompt(row, where), completion, score, **_judge(row, where))


def as_thumb(row: Any, where: str) -> Thumb:
    """Thumbs up or down for an answer."""
    completion, label = _completion(row, where), _truth(row, "label", where)
    return Thumb(as_prompt(row, where), completion, label, **_judge(row, where))


def _standard(row: Any, where: str) -> Any:
    return standard_row(row, where) if isinstance(row, Mapping) else row


def _judge(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    annotator = str(row["annotator"]) if says(row, "annotator") else None
    return {"confidence": _weight(row, "confidence", where, default=1.0), "annotator": annotator}


def _found(row: Any) -> str:
    return ", ".join(map(str, row)) if isinstance(row, Mapping) else type(row).__name__


def _ends_in_answer(row: Mapping[str, Any]) -> bool:
    messages = row.get("messages")
    last = messages[-1] if isinstance(messages, (list, tuple)) and messages else None
    return isinstance(last, Mapping) and last.get("role") == "assistant" and not says(row, "prompt")


def _completion(row: Any, where: str) -> str:
    """The answer of a row: its completion, or the last message of its conversation."""
    if isinstance(row, Mapping) and not says(row, "completion") and _ends_in_answer(row):
        row = {"completion": row["messages"][-1:]}
    return _answer(row, "completion", where)


def _answer(row: Any, column: str, where: str) -> str:
    """The text of an answer, given as text or as a list with one assistant message."""
    if not isinstance(row, Mapping) or column not in row:
        raise DataError(f"{where} has no column {column!r}. It has: {_found(row)}.")
    value = row[column]
    if isinstance(value, (list, tuple)) and len(value) == 1 and isinstance(value[0], Mapping):
        role, value = value[0].get("role"), value[0].get("content")
        if role != "assistant":
            raise DataError(f"{where} has a message of {role!r} as its {column!r}, expected one of 'assistant'.")
    if not isinstance(value, str) or not value.strip():
        expected = "text, or a list with one message of the assistant"
        raise DataError(f"{where} has {brief(value)} as its {column!r}, expected {expected}.")
    if not is_utf8(value):
        raise DataError(f"{where} has half a character in its {column!r}: {brief(value)}. Remove it from the text.")
    return value


LARGEST = 1e6
"""The largest score, confidence or margin: beyond it, float32 cannot resolve differences between them."""


def in_range(number: float) -> bool:
    """Whether a score, confidence or margin can be stored and learned from: finite, and within ±LARGEST."""
    return math.isfinite(number) and abs(number) <= LARGEST


def _number(row: Mapping[str, Any], column: str, where: str, default: float | None = None) -> float:
    if default is not None and not says(row, column):
        return default
    value = row.get(column)
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # CSV holds text
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not in_range(number):
        raise DataError(f"{where} has {brief(value)} as its {column!r}, expected a number (within ±{LARGEST:g}).")
    return number


def _weight(row: Mapping[str, Any], column: str, where: str, default: float) -> float:
    number = _number(row, column, where, default)
    if number < 0:
        raise DataError(f"{where} has {number:g} as its {column!r}, expected 0 or more.")
    return number


TRUTHS = {
    **dict.fromkeys(("true", "1", "1.0", "yes", "up", "good"), True),
    **dict.fromkeys(("false", "0", "0.0", "-1", "-1.0", "no", "down", "bad"), False),
}
"""Accepted spellings of true and false."""


def _truth(row: Mapping[str, Any], column: str, where: str, default: bool | None = None) -> bool:
    if default is not None and not says(row, column):
        return default
    value = TRUTHS.get(str(row.get(column)).strip().lower())
    if value is None:
        raise DataError(f"{where} has {brief(row.get(column))} as its {column!r}, expected true or false.")
    return value
