"""Responses of a stored step, a cell per token, coloured by advantage and by KL, with every number beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ppolm.errors import RunFolderError
from ppolm.messages import reason
from ppolm.runs.report_text import PROMPT, visible
from ppolm.studio.response_view import response_view
from ppolm.studio.step_overview import column_ranges, overview, take_me_to
from ppolm.studio.step_table import StepTable
from ppolm.studio.token_pieces import TokenPieces
from ppolm.studio.token_tables import TokenTables, logged_steps

COLOURED = {"advantage": "advantage", "kl": "KL"}
MOST_TOKENS = 300
"""Tokens of a response that are shown."""
LONGEST_TOKEN = 60
CHOSEN = {
    "best score": "best score of the step",
    "worst score": "worst score",
    "largest KL": "token with the largest KL",
}
STRONGEST = 70
"""Per cent of colour in the cell of the largest number: text on it must stay legible."""


def token_views(run: Path) -> list[dict[str, Any]]:
    """A few responses of the first and of the last stored step."""
    steps = logged_steps(run)
    tables = TokenTables()
    return [_step_view(tables, run, step) for step in dict.fromkeys((*steps[:1], *steps[-1:]))]


def _step_view(tables: TokenTables, run: Path, step: int) -> dict[str, Any]:
    try:
        table = tables.load(run, step)
        return {"step": step, "scales": _scales(table), "responses": list(_responses(table))}
    except (RunFolderError, ValueError, KeyError, IndexError) as error:  # a table that is damaged where nobody looked
        return {"step": step, "error": visible(reason(error), 300, keep="")}


def _scales(table: StepTable) -> dict[str, float]:
    """For each coloured column the number that has the strongest colour, on either side of 0."""
    ranges = column_ranges(table)
    found = {}
    for name in COLOURED:
        low, high = (ranges.get(name, {}).get(end) for end in ("low", "high"))
        if low is not None and high is not None:
            found[name] = max(abs(low), abs(high)) or 1.0
    return found


def _responses(table: StepTable) -> Iterator[dict[str, Any]]:
    places = take_me_to(table, overview(table))
    why: dict[int, list[str]] = {}
    for name, label in CHOSEN.items():
        place = places.get(name)
        if place is not None and (name != "largest KL" or place["value"] > 0):  # before the first update there is none
            why.setdefault(place["sequence"], []).append(label)
    scales = _scales(table)
    for sequence, labels in why.items():
        yield _response(table, sequence, scales) | {"why": ", ".join(labels)}


def _response(table: StepTable, sequence: int, scales: dict[str, float]) -> dict[str, Any]:
    seen = response_view(table, sequence, TokenPieces())
    columns = {name: values[:MOST_TOKENS] for name, values in seen["columns"].items()}
    texts = [_token_text(text) for text in seen["texts"][:MOST_TOKENS]]
    rows = [
        {
            "text": text,
            "id": seen["ids"][i],
            "numbers": [_digits(values[i]) for values in columns.values()],
            "colours": {name: _colour(columns[name][i], scale) for name, scale in scales.items()},
            "title": _title(text, seen["ids"][i], {name: values[i] for name, values in columns.items()}),
        }
        for i, text in enumerate(texts)
    ]
    return {
        "sequence": sequence,
        "prompt": visible(seen["prompt_text"], PROMPT),
        "ended": seen["ended"],
        "columns": list(columns),
        "tokens": rows,
        "left_out": len(seen["texts"]) - len(rows),
    }


def _token_text(text: str) -> str:
    """A token as its cell shows it: line breaks and tabs visible, and still there."""
    return visible(text, LONGEST_TOKEN).replace("\n", "⏎\n").replace("\t", "⇥\t") or "∅"


def _colour(value: float | None, scale: float) -> tuple[str, int]:
    """The side of 0, and per cent of its colour."""
    if value is None:
        return "gap", 0
    return "above" if value >= 0 else "below", round(STRONGEST * min(1.0, abs(value) / scale))


def _title(text: str, token: int, values: dict[str, float | None]) -> str:
    """What a cell says when the pointer rests on it."""
    return "\n".join(
        [f"{text.strip() or repr(text)}  (token {token})", *(f"{k}: {_digits(v)}" for k, v in values.items())]
    )


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
