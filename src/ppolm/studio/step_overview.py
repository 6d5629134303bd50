"""Overview of a step: a row per response, the extremes, and the ranges of the columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppolm.studio.step_table import Numbers, StepTable

PREVIEW_TOKENS, PREVIEW_LETTERS = 48, 160
"""How much of a response a row of the list shows."""
LARGEST_PAGE = 200
SEQUENTIAL = ("logprob_sampler", "logprob_policy", "logprob_ref", "value", "return", "reward_to_go")
"""Columns of levels, coloured from low to high. In all others the sign matters: their colours are centred at 0."""


@dataclass(frozen=True)
class Overview:
    """Numbers per response, each [S]; NaN where a column is missing."""

    length: Numbers
    score: Numbers
    """Sum over the tokens."""
    reward: Numbers
    kl: Numbers
    abs_advantage: Numbers
    """Mean over the tokens."""
    value_error: Numbers
    """The largest |value − target| of a token."""

    def column(self, name: str) -> Numbers:
        """A column by name."""
        found: Numbers = getattr(self, name)
        return found


SORTS = ("sequence", "prompt", *Overview.__annotations__)
"""What a list of responses can be sorted by."""


@dataclass(frozen=True)
class Filters:
    """Which responses of a step are listed, and in which order."""

    sort: str = "sequence"
    descending: bool = False
    ended: bool | None = None
    """Only those that ended, or did not; None: both."""
    prompt: int | None = None
    """Only those to this prompt."""
    find: str = ""
    """Only those whose response or prompt has this text, in whatever case."""


def column_or_nan(table: StepTable, name: str) -> Numbers:
    """A column [N] in float64, NaN where the table has none."""
    if name in table.columns:
        return table.columns[name].astype(np.float64)
    return np.full(int(table.offsets[-1]), np.nan)


def value_errors(table: StepTable, target: str) -> Numbers:
    """|value − target| of each token; what the run trains its value model on is ``return`` or ``reward_to_go``."""
    return np.abs(column_or_nan(table, "value") - column_or_nan(table, target))


def overview(table: StepTable, target: str = "return") -> Overview:
    """The numbers of each response; a response without tokens has none."""
    return Overview(
        length=table.lengths,
        score=_sums(table, column_or_nan(table, "score")),
        reward=_sums(table, column_or_nan(table, "reward")),
        kl=_sums(table, column_or_nan(table, "kl")),
        abs_advantage=_sums(table, np.abs(column_or_nan(table, "advantage"))) / np.maximum(table.lengths, 1),
        value_error=_maxima(table, value_errors(table, target)),
    )


def _sums(table: StepTable, column: Numbers) -> Numbers:
    return np.bincount(table.sequence_of, weights=column, minlength=table.num_responses)


def _maxima(table: StepTable, column: Numbers) -> Numbers:
    found = np.full(table.num_responses, np.nan)
    filled = table.lengths > 0
    found[filled] = np.fmax.reduceat(column, table.offsets[:-1][filled])
    return found


def chosen(table: StepTable, found: Overview, filters: Filters) -> Numbers:
    """The responses that match the filters, in the order of the list; missing values come last."""
    keep = np.ones(table.num_responses, dtype=bool)
    if filters.ended is not None:
        keep &= table.ended == filters.ended
    if filters.prompt is not None:
        keep &= table.owners == filters.prompt
    if filters.find:
        keep &= _holding(table, filters.find.casefold())
    numbers = np.flatnonzero(keep)
    if filters.sort == "sequence":
        return numbers[::-1] if filters.descending else numbers
    values = table.owners if filters.sort == "prompt" else found.column(filters.sort)
    keys = values[numbers].astype(np.float64)
    return numbers[np.argsort(-keys if filters.descending else keys, kind="stable")]  # NaN sorts last either way


def _holding(table: StepTable, text: str) -> Numbers:
    prompts = {number: text in prompt.casefold() for number, prompt in enumerate(table.prompt_texts)}
    texts = table.texts(0, int(table.offsets[-1]))
    starts, ends = table.offsets[:-1].tolist(), table.offsets[1:].tolist()
    return np.array(
        [
            prompts.get(owner, False) or text in "".join(texts[start:end]).casefold()
            for owner, start, end in zip(table.owners.tolist(), starts, ends, strict=True)
        ]
    )


def page_rows(table: StepTable, found: Overview, numbers: Numbers) -> list[dict[str, Any]]:
    """The rows of one page of the list."""
    columns = {name: found.column(name) for name in Overview.__annotations__}
    return [
        {
            "sequence": number,
            "prompt": int(table.owners[number]),
            "ended": bool(table.ended[number]),
            "preview": table.response_text(number, PREVIEW_TOKENS)[:PREVIEW_LETTERS],
            **{name: gap(values[number]) for name, values in columns.items()},
        }
        for number in numbers[:LARGEST_PAGE].tolist()
    ]


def take_me_to(table: StepTable, found: Overview, target: str = "return") -> dict[str, dict[str, Any] | None]:
    """Response, token and number of every extreme; None if the step has none."""
    errors = value_errors(table, target)
    places = {
        "largest KL": _token(table, column_or_nan(table, "kl")),
        "largest |advantage|": _token(table, np.abs(column_or_nan(table, "advantage"))),
        "worst value error": _token(table, errors),
        "best score": _response(table, found.score),
        "worst score": _response(table, -found.score, sign=-1.0),
        "longest": _response(table, found.length.astype(np.float64)),
    }
    cut_off = np.flatnonzero(~table.ended & (table.lengths > 0))
    places["not ended"] = _last_token(table, int(cut_off[0]), float(len(cut_off))) if len(cut_off) else None
    return places


def _token(table: StepTable, column: Numbers) -> dict[str, Any] | None:
    """The token where a column is largest."""
    if not np.isfinite(column).any():
        return None
    row = int(np.argmax(np.where(np.isfinite(column), column, -np.inf)))
    sequence = int(table.sequence_of[row])
    return {"sequence": sequence, "token": row - int(table.offsets[sequence]), "value": float(column[row])}


def _response(table: StepTable, column: Numbers, sign: float = 1.0) -> dict[str, Any] | None:
    """The last token of the response where a number is largest: its score belongs to that token."""
    usable = np.isfinite(column) & (table.lengths > 0)
    if not usable.any():
        return None
    sequence = int(np.argmax(np.where(usable, column, -np.inf)))
    return _last_token(table, sequence, sign * float(column[sequence]))


def _last_token(table: StepTable, sequence: int, value: float) -> dict[str, Any]:
    return {"sequence": sequence, "token": int(table.lengths[sequence]) - 1, "value": value}


def column_ranges(table: StepTable) -> dict[str, dict[str, Any]]:
    """Minimum, maximum, the middle 96 % (for colours that one outlier cannot wash out) and the gaps of each column."""
    return {name: number_range(table.columns[name], name not in SEQUENTIAL) for name in table.numeric}


def number_range(column: Numbers, diverging: bool) -> dict[str, Any]:
    """The range of one column."""
    finite = column[np.isfinite(column)]
    found: dict[str, Any] = {"diverging": diverging, "missing": len(column) - len(finite)}
    if not len(finite):
        return {**found, "min": None, "max": None, "low": None, "high": None}
    low, high = np.percentile(finite, (2, 98))
    return {**found, "min": gap(finite.min()), "max": gap(finite.max()), "low": gap(low), "high": gap(high)}


def gap(value: Any) -> int | float | None:
    """A number for JSON; None if it is not finite."""
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
