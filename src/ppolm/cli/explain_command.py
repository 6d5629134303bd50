"""``ppolm explain``: where the advantage of one token comes from, term by term, compared with the stored one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from ppolm.cli.runs_command import print_lines, terminal_width
from ppolm.cli.settings import parse
from ppolm.cli.stored_step import check_place, stored_step
from ppolm.cli.text_table import Column, shown, table_lines
from ppolm.errors import ConfigError
from ppolm.messages import json_text

WIDEST = 100
"""Columns of a paragraph: longer lines are hard to read."""


@dataclass(frozen=True)
class ExplainArguments:
    """Derive a token's advantage term by term, in words and numbers, and compare it with the one that was stored."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    step: int | None = None
    """PPO step. Default: the newest whose table was stored (every table_every steps)."""
    sequence: int | None = None
    """Number of the response in the step, from 0, as `ppolm tokens` prints it."""
    token: int | None = None
    """Place of the token in its response, from 0."""
    json: bool = False
    """Print every term as JSON."""


def main(argv: list[str]) -> None:
    """Print the terms."""
    arguments = parse(ExplainArguments, "ppolm explain", argv)
    if arguments.sequence is None or arguments.token is None:
        raise ConfigError(
            "Which token? Give --sequence and --token, such as --sequence 3 --token 17. "
            "`ppolm tokens RUN --sort-by advantage --absolute` finds interesting ones."
        )
    number, step = stored_step(arguments.run, arguments.step)
    check_place("sequence", arguments.sequence, step.table.num_responses, "the step")
    length = int(step.table.lengths[arguments.sequence])
    check_place("token", arguments.token, length, f"response {arguments.sequence}")
    found = step.explained.explain(arguments.sequence, arguments.token)
    if arguments.json:
        print_lines([json_text(found, indent=1)])
        return
    where = f"Step {number}, response {arguments.sequence}, token {arguments.token}"
    print_lines([where, "", *paragraphs(found, min(terminal_width() or WIDEST, WIDEST))])


def paragraphs(found: dict[str, Any], width: int) -> Iterator[str]:
    """The sentences, each on lines of its own; the terms of the sum as a table; the check."""
    for sentence in found["sentences"]:
        yield from textwrap.wrap(sentence, max(width, 40), subsequent_indent="  ")
    yield ""
    yield from terms(found, width)
    yield ""
    yield check(found)


def terms(found: dict[str, Any], width: int) -> list[str]:
    """(γλ)ⁱ · δ of this token and of the later ones that matter most."""
    rows = found["contributions"]
    columns = [
        Column("token", [str(one["token"]) for one in rows], right=True),
        Column("text", [f"«{shown(one['text'])}»" for one in rows], least=8),
        Column("(γλ)^i", [f"{one['weight']:.4f}" for one in rows], right=True),
        Column("× TD error", [f"{one['td_error']:+.5f}" for one in rows], right=True),
        Column("= adds", [f"{one['amount']:+.5f}" for one in rows], right=True),
    ]
    lines = table_lines(columns, width)
    if found["rest_count"]:
        lines.append(f"the other {found['rest_count']} tokens: {found['rest']:+.5f}")
    return [*lines, f"sum: {found['raw_advantage']:+.5f}"]


def check(found: dict[str, Any]) -> str:
    """Whether the derivation gives the advantage that the run trained on."""
    from ppolm.explain.in_words import ROUNDING

    derived, stored = found["advantage"], found["stored_advantage"]
    if abs(found["residual"]) <= ROUNDING:
        return f"Derived {derived:+.6f}, stored {stored:+.6f}: the same."
    return f"Derived {derived:+.6f}, stored {stored:+.6f}: NOT the same; they differ by {found['residual']:+.6f}."
