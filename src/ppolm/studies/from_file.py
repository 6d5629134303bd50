"""Items of a study from data files: prompts with two answers, or with one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppolm.data.examples import Rating, Thumb, as_demonstration, as_example, as_judgement, as_preference
from ppolm.data.load_rows import load_rows
from ppolm.errors import DataError
from ppolm.feedback.record import Source
from ppolm.feedback.study import Ask, Item

PAIR = {"first": "chosen", "second": "rejected"}
"""Columns of a pair that nobody has judged, and what the readers of data call them."""


def from_file(source: str, ask: Ask, split: str = "train", skip_bad: bool = False) -> list[Item]:
    """Rows with a prompt and ``first`` and ``second`` (or ``chosen`` and ``rejected``), or a ``completion``.

    ``first_policy`` and ``second_policy``, or ``policy``, say who answered, for win rates.
    """
    what = "pairs (prompt, first, second)" if ask == "preference" else "answers (prompt, completion)"
    return load_rows(source, split, lambda row, where: _as_item(row, where, ask), what, skip_bad)


def gold_from_file(source: str, ask: Ask, split: str = "train", skip_bad: bool = False) -> list[Item]:
    """Rows whose judgement is known to be right: chosen and rejected, completion with label, completion with score."""

    def as_gold(row: Any, where: str) -> Item:
        judged = as_judgement(row, where)
        said = judged.said
        gold = {
            "preference": "tie" if said.get("tie") else "first" if "tie" in said else None,
            "thumb": None if "label" not in said else "up" if said["label"] else "down",
            "score": None if "score" not in said else repr(said["score"]),
        }[ask]
        if gold is None:
            raise DataError(f"{where} holds no {ask}, which this study asks for. Give another file as --gold.")
        return Item(judged.prompt.content, tuple(judged.answers.values()), (), gold)

    return load_rows(source, split, as_gold, f"answers that are known to be right (for a {ask})", skip_bad)


def _as_item(row: Any, where: str, ask: Ask) -> Item:
    policies = {name: row.get(name) for name in ("first_policy", "second_policy", "policy")} if _is_row(row) else {}
    names = {name: None if value in (None, "") else str(value) for name, value in policies.items()}
    if ask == "preference":
        pair = as_preference(_named(row), where)
        sources = (Source(policy=names.get("first_policy")), Source(policy=names.get("second_policy")))
        return Item(pair.prompt.content, (pair.chosen, pair.rejected), sources)
    found = as_example(row, where)
    example = found if isinstance(found, (Rating, Thumb)) else as_demonstration(row, where)
    return Item(example.prompt.content, (example.completion,), (Source(policy=names.get("policy")),))


def _is_row(row: Any) -> bool:
    return isinstance(row, Mapping)


def _named(row: Any) -> Any:
    """A row with the columns of a pair under the names that the readers of data know."""
    if not _is_row(row) or not PAIR.keys() <= row.keys():
        return row
    return {PAIR.get(name, name): value for name, value in row.items() if name not in PAIR.values()}
