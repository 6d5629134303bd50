"""Reading a reward model's stored readiness report: before training on it, and for pages.

The folder may come from elsewhere, or be damaged or incomplete. What cannot be read is left open and named; it is never
an error.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ppolm.messages import cut, reason
from ppolm.readiness.readiness_report import Readiness

REPORT = "readiness.json"
LARGEST_FILE = 32 << 20
LONGEST_TEXT = 20_000
MOST_ITEMS = 1_000
"""Characters of a text and entries of a list that are kept: a report that ppolm wrote seldom has as many."""


def doubts_about(folder: Path) -> str | None:
    """Why a reward model should not be trained on, from the report in its folder; None if there is no reason."""
    try:
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        verdict, reasons = report["verdict"], [str(reason["text"]) for reason in report["reasons"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no report, or not readable
    return "; ".join(reasons) if verdict == "not ready" else None


@dataclasses.dataclass(frozen=True)
class StoredReadiness:
    """A report as it was found."""

    report: dict[str, Any] | None
    """The fields of ``Readiness``, None where a part is missing or is not what it should be; None: there is none."""
    problem: str | None
    """A sentence if there is a report that cannot be read as a whole."""


def stored_readiness(folder: Path) -> StoredReadiness:
    """The report beside a reward model, as JSON holds it."""
    found, problem = read_json_object(folder / REPORT)
    if found is None:
        return StoredReadiness(None, problem)
    gaps: list[str] = []
    report = _fields(Readiness, found, "", gaps)
    if gaps:
        some = ", ".join(gaps[:5]) + (", ..." if len(gaps) > 5 else "")
        problem = f"{REPORT} is damaged, or was written by another version of ppolm: {cut(some, 200)} cannot be read."
    return StoredReadiness(report, problem)


def read_json_object(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """A JSON object from a file, or a sentence about why not; neither if there is no such file."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            return None, f"{path.name} is larger than {LARGEST_FILE >> 20} MiB, so nothing of it is shown."
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, RecursionError) as error:
        return None, f"{path.name} cannot be read: {reason(error, 200)}."
    if not isinstance(found, dict):
        return None, f"{path.name} holds a {type(found).__name__}, expected an object."
    return found, None


def _fields(kind: type, value: Any, place: str, gaps: list[str]) -> dict[str, Any] | None:
    """The fields of a dataclass out of a JSON object; ``gaps`` collects the names of what does not fit."""
    if not isinstance(value, dict):
        gaps.append(place)
        return None
    hints = get_type_hints(kind)
    names = {field.name: f"{place}.{field.name}".lstrip(".") for field in dataclasses.fields(kind)}
    gaps += [where for name, where in names.items() if name not in value]
    return {
        name: _fitting(hints[name], value[name], where, gaps) if name in value else None
        for name, where in names.items()
    }


def _fitting(hint: Any, value: Any, place: str, gaps: list[str]) -> Any:
    """A value as its annotation asks, or None; a number that is not known was written as null."""
    origin, inner = get_origin(hint), get_args(hint)
    if value is None:
        return None
    if origin in (Union, types.UnionType):
        return _fitting(next(one for one in inner if one is not types.NoneType), value, place, gaps)
    if dataclasses.is_dataclass(hint):
        return _fields(hint if isinstance(hint, type) else type(hint), value, place, gaps)
    if origin is tuple and isinstance(value, list):
        return [_fitting(inner[0], one, place, gaps) for one in value[:MOST_ITEMS]]
    if origin is dict and isinstance(value, dict):
        some = list(value.items())[:MOST_ITEMS]
        return {cut(name, 200): _fitting(inner[1], one, f"{place}.{cut(name, 40)}", gaps) for name, one in some}
    if _is(hint, origin, inner, value):
        return value[:LONGEST_TEXT] if isinstance(value, str) else value
    gaps.append(place)
    return None


def _is(hint: Any, origin: Any, allowed: Sequence[Any], value: Any) -> bool:
    """Whether a plain value is of its kind: a whole number is a number too, true is none."""
    if origin is Literal:
        return value in allowed
    if hint in (int, float):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and math.isfinite(value) and (hint is float or isinstance(value, int))
    return hint in (str, bool) and isinstance(value, hint)
