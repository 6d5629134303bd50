"""What people gave us to learn from: demonstrations (prompt, completion) and preferences (prompt, chosen, rejected)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ppolm.data.prompts import Prompt, as_prompt
from ppolm.data.read_rows import read_rows
from ppolm.errors import DataError


@dataclass(frozen=True)
class Demonstration:
    """A prompt and the answer to imitate."""

    prompt: Prompt
    completion: str


@dataclass(frozen=True)
class Preference:
    """A prompt and two answers, of which people preferred the first."""

    prompt: Prompt
    chosen: str
    rejected: str


def load_demonstrations(source: str, split: str = "train") -> list[Demonstration]:
    """All demonstrations of a file or dataset; a bad row is an error that names its file and line."""
    rows = [as_demonstration(row, where) for where, row in read_rows(source, split)]
    return _some(rows, source, "demonstrations (prompt, completion)")


def load_preferences(source: str, split: str = "train") -> list[Preference]:
    """All preferences of a file or dataset; a bad row is an error that names its file and line."""
    rows = [as_preference(row, where) for where, row in read_rows(source, split)]
    return _some(rows, source, "preferences (prompt, chosen, rejected)")


def as_demonstration(row: Any, where: str) -> Demonstration:
    """Check one row."""
    return Demonstration(as_prompt(row, where), _text(row, "completion", where))


def as_preference(row: Any, where: str) -> Preference:
    """Check one row."""
    chosen, rejected = _text(row, "chosen", where), _text(row, "rejected", where)
    if chosen == rejected:
        raise DataError(f"{where} prefers a text to itself: 'chosen' and 'rejected' are the same. Remove the row.")
    return Preference(as_prompt(row, where), chosen, rejected)


def _text(row: Any, column: str, where: str) -> str:
    if not isinstance(row, Mapping) or column not in row:
        found = ", ".join(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
        raise DataError(f"{where} has no column {column!r}. It has: {found}.")
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where} has {value!r:.60} as its {column!r}, expected text.")
    return value


def _some(rows: list[Any], source: str, what: str) -> list[Any]:
    if not rows:
        raise DataError(f"{source} holds no {what}.")
    return rows
