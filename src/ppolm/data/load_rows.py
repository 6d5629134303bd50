"""Loading checked rows of a file or dataset: all of them, or an error that names the first bad one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ppolm.config import SupervisedConfig
from ppolm.data.examples import Demonstration, Judgement, as_demonstration, as_judgement
from ppolm.data.prompts import Prompt, as_prompt
from ppolm.data.read_rows import read_rows
from ppolm.errors import DataError

log = logging.getLogger(__name__)
T = TypeVar("T")


def load_prompts(source: str, split: str = "train", skip_bad: bool = False) -> list[Prompt]:
    """All prompts of a source: text, chat messages, or rows with a prompt or messages column."""
    return load_rows(source, split, as_prompt, "prompts", skip_bad)


def load_demonstrations(source: str, split: str = "train", skip_bad: bool = False) -> list[Demonstration]:
    """All demonstrations of a source."""
    return load_rows(source, split, as_demonstration, "demonstrations (prompt, completion)", skip_bad)


def load_judgements(source: str, split: str = "train", skip_bad: bool = False) -> list[Judgement]:
    """All preferences, scores and thumbs of a source."""
    return load_rows(source, split, as_judgement, "judgements (prompt, chosen, rejected)", skip_bad)


def load_rows(source: str, split: str, convert: Callable[[Any, str], T], what: str, skip_bad: bool = False) -> list[T]:
    """All rows of a source; a bad row raises an error that names its file and line, or is skipped and counted."""
    good, bad = try_rows(source, split, convert)
    if bad and not skip_bad:
        rest = "leaves it out" if len(bad) == 1 else f"leaves all {len(bad)} bad rows out"
        raise DataError(f"{bad[0]} Fix the file, or skip_bad_rows {rest}.")
    if bad and not good:
        raise DataError(f"{source} holds no {what}: every row is bad, {len(bad)} in all. The first: {bad[0]}")
    if bad:
        log.warning("%s: %d of %d rows left out. The first: %s", source, len(bad), len(bad) + len(good), bad[0])
    if not good:
        raise DataError(f"{source} holds no {what}. Give at least one.")
    return good


def try_rows(source: str, split: str, convert: Callable[[Any, str], T]) -> tuple[list[T], list[DataError]]:
    """The good rows of a source, and the errors of the bad ones."""
    good: list[T] = []
    bad: list[DataError] = []
    for where, row in read_rows(source, split):
        try:
            if isinstance(row, DataError):
                raise row
            good.append(convert(row, where))
        except DataError as error:
            bad.append(error.with_traceback(None))  # the traceback would keep the row in memory
    return good, bad


def load_sources(
    load: Callable[[str, str, bool], list[T]], sources: Sequence[str], config: SupervisedConfig
) -> list[T]:
    """The rows of several sources, concatenated."""
    return [row for source in sources for row in load(source, config.dataset_split, config.skip_bad_rows)]
