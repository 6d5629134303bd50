"""Values of an exported row: a spreadsheet holds text, and 3 as 3.0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ppolm.data.examples import TRUTHS, in_range
from ppolm.errors import DataError
from ppolm.messages import brief

RENAME = "Rename the column if it means something else."


def as_text(columns: Mapping[str, Any], name: str) -> str | None:
    """Text; an empty cell is none."""
    value = columns.get(name)
    return None if value in (None, "") else str(value)


def as_whole(columns: Mapping[str, Any], name: str, where: str) -> int | None:
    """A whole number."""
    value = columns.get(name)
    if value in (None, ""):
        return None
    try:
        number = float(value)
        if number == int(number) and abs(number) < 2**31:
            return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    raise _unexpected(value, name, where, "a whole number")


def as_number(columns: Mapping[str, Any], name: str, where: str) -> float | None:
    """A number."""
    value = columns.get(name)
    if value in (None, ""):
        return None
    try:
        if in_range(float(value)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise _unexpected(value, name, where, "a number")


def as_flag(columns: Mapping[str, Any], name: str, where: str) -> bool | None:
    """True or false."""
    value = columns.get(name)
    if value in (None, ""):
        return None
    truth = TRUTHS.get(str(value).strip().lower())
    if truth is None:
        raise _unexpected(value, name, where, "true or false")
    return truth


def as_axes(columns: Mapping[str, Any], where: str) -> dict[str, float] | None:
    """Scores by name, as JSON."""
    value = columns.get("axes")
    if value in (None, ""):
        return None
    try:
        axes = json.loads(value) if isinstance(value, str) else value
        if isinstance(axes, Mapping) and all(in_range(score) for score in axes.values()):
            return {str(name): float(score) for name, score in axes.items()}
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    raise _unexpected(value, "axes", where, "scores by name as JSON")


def as_time(columns: Mapping[str, Any], where: str) -> datetime | None:
    """When it was judged."""
    value = columns.get("judged_at")
    if value in (None, ""):
        return None
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)
    except (ValueError, OverflowError):  # the latter: a first or last day that another time zone does not have
        expected = "a time such as 2026-05-01T12:00:00+00:00"
        raise _unexpected(value, "judged_at", where, expected) from None


def _unexpected(value: Any, name: str, where: str, expected: str) -> DataError:
    return DataError(f"{where} has {brief(value)} as its {name!r}, expected {expected}. {RENAME}")
