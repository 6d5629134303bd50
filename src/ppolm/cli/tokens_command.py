"""``ppolm tokens``: the tokens of a stored step, sorted by any column, each with its context and its whole row."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from ppolm.cli.runs_command import print_lines, terminal_width
from ppolm.cli.settings import parse
from ppolm.cli.stored_step import check_place, stored_step
from ppolm.errors import ConfigError
from ppolm.messages import brief, json_text, printable

if TYPE_CHECKING:
    from ppolm.studio.step_table import Numbers, StepTable

MOST = 10_000
"""Tokens that are printed at once; all of them are in the Parquet file."""
BEFORE, AFTER = 60, 20
"""Letters of the response that are shown around a token."""
NARROWEST = 40


@dataclass(frozen=True)
class TokensArguments:
    """Print tokens of a stored step with their contexts and all columns (docs/columns.md says what they mean)."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    step: int | None = None
    """PPO step. Default: the newest whose table was stored (every table_every steps)."""
    sort_by: str | None = None
    """Column to sort by, largest first, such as kl, advantage or td_error. Default: in the order of the table."""
    ascending: bool = False
    """Smallest first."""
    absolute: bool = False
    """Sort by the size of the number, whatever its sign."""
    sequence: int | None = None
    """Only tokens of this response."""
    find: str = ""
    """Only tokens whose text contains this."""
    top: int = 20
    """How many tokens."""
    json: bool = False
    """Print one JSON object per token."""


def main(argv: list[str]) -> None:
    """Read the table and print."""
    arguments = parse(TokensArguments, "ppolm tokens", argv)
    if not 1 <= arguments.top <= MOST:
        raise ConfigError(f"top is {brief(arguments.top)}, expected 1 to {MOST:,}.")
    number, step = stored_step(arguments.run, arguments.step)
    rows, found = choose_rows(step.table, arguments)
    tokens = [describe(step.table, row) for row in rows]
    if arguments.json:
        print_lines([json_text(token) for token in tokens])
        return
    order = "" if arguments.sort_by is None else f", sorted by {_order(arguments)}"
    shown = f"{len(rows)} of {found} tokens" if found > len(rows) else f"{found} tokens"
    print_lines([f"Step {number}: {shown}{order}", *_blocks(tokens, terminal_width() or 120)])


def choose_rows(table: StepTable, arguments: TokensArguments) -> tuple[list[int], int]:
    """Rows of the table that are asked for, in order, and how many there are before ``top`` cuts them."""
    rows = np.arange(int(table.offsets[-1]))
    if arguments.sequence is not None:
        check_place("sequence", arguments.sequence, table.num_responses, "the step")
        rows = rows[table.sequence_of == arguments.sequence]
    if arguments.find:
        texts = table.texts(0, int(table.offsets[-1]))
        rows = rows[[arguments.find in texts[row] for row in rows]]
    if arguments.sort_by is not None:
        rows = rows[sort_order(_column(table, arguments.sort_by)[rows], arguments)]
    return rows[: arguments.top].tolist(), len(rows)


def sort_order(values: Numbers, arguments: TokensArguments) -> Numbers:
    """Indices that sort; equal numbers keep the table's order, and those that are missing come last."""
    keys = np.abs(values.astype(float)) if arguments.absolute else values.astype(float)
    keys = keys if arguments.ascending else -keys
    return np.argsort(np.where(np.isnan(keys), np.inf, keys), kind="stable")


def describe(table: StepTable, row: int) -> dict[str, Any]:
    """A token with what stands around it, and every column."""
    sequence = int(table.sequence_of[row])
    start, end = int(table.offsets[sequence]), int(table.offsets[sequence + 1])
    texts, at = table.texts(start, end), row - start
    columns = {name: table.columns[name][row].item() for name in table.numeric}
    return {
        "sequence": sequence,
        "token": at,
        "tokens": end - start,
        "text": texts[at],
        "before": "".join(texts[:at]) or table.prompt_text(sequence),
        "after": "".join(texts[at + 1 :]),
        "prompt_idx": int(table.owners[sequence]),
        "action_id": int(table.columns["action_id"][row]),
        **{name: value if np.isfinite(value) else None for name, value in columns.items()},
    }


def _column(table: StepTable, name: str) -> Numbers:
    if name not in table.columns:
        near = difflib.get_close_matches(name[:50], table.columns, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"It has {', '.join(table.columns)}."
        raise ConfigError(f"The table has no column {brief(name)}. {hint}")
    return table.columns[name]


def _order(arguments: TokensArguments) -> str:
    size = f"|{arguments.sort_by}|" if arguments.absolute else arguments.sort_by
    return f"{size}, {'smallest' if arguments.ascending else 'largest'} first"


def _blocks(tokens: Sequence[dict[str, Any]], width: int) -> Iterator[str]:
    """Some lines for each token: where it stands, its context, its numbers."""
    width = max(width, NARROWEST)
    for token in tokens:
        yield ""
        yield f"response {token['sequence']}, token {token['token']} (of {token['tokens']})"
        yield "  " + _context(token, width - 2)
        numbers = {name: value for name, value in token.items() if name not in NOT_NUMBERS}
        pairs = [f"{name}\u00a0{_number(value)}" for name, value in numbers.items()]
        for line in textwrap.wrap("   ".join(pairs), width - 2, break_long_words=False, break_on_hyphens=False):
            yield "  " + line.replace("\u00a0", " ")


NOT_NUMBERS = ("sequence", "token", "tokens", "text", "before", "after")


def _context(token: dict[str, Any], width: int) -> str:
    """… the text before «token» the text after …, on one line."""
    text = _one_line(token["text"])
    room = max(width - len(text) - 4, 0)
    before, after = _one_line(token["before"]), _one_line(token["after"])
    left = min(BEFORE, room - min(AFTER, room // 4, len(after)))
    right = min(AFTER, room - min(left, len(before)))
    start = before if len(before) <= left else "…" + before[len(before) - left :]
    end = after if len(after) <= right else after[:right] + "…"
    return f"{start}«{text}»{end}"


def _one_line(text: str) -> str:
    return printable(text.replace("\n", "↵"), keep="")


def _number(value: float | int | None) -> str:
    return "-" if value is None else f"{value}" if isinstance(value, int) else f"{value:.4g}"
