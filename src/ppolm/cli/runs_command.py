"""``ppolm runs``: what runs there are and how they are doing, from their folders alone; two or more beside each other.

Nothing large is loaded: a list of runs answers at once.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ppolm.cli.settings import parse
from ppolm.cli.text_table import BLOCKS, Column, shown, sparkline, table_lines
from ppolm.errors import ConfigError
from ppolm.messages import brief, json_text
from ppolm.runs.run_overview import RunOverview, find_runs, is_run, outcome, overview

DEFAULT = ("runs",)
LONGEST_WHY = 60


@dataclass(frozen=True)
class RunsArguments:
    """List runs: state, steps, reward, KL, best step, verdict. Two or more run folders are compared instead.

    A comparison shows the settings that differ, and the final figures with intervals side by side.
    """

    folders: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[FOLDER ...]")] = DEFAULT
    """Run folders, or folders that hold some."""
    sort: Literal["age", "name", "state", "step", "reward", "kl"] = "age"
    """Newest first, by name, running ones first, most steps first, highest reward first, lowest KL first."""
    filter: str = ""
    """Only runs with this text in their name, state, verdict or why they ended."""
    json: bool = False
    """Print JSON instead of a table."""


def main(argv: list[str]) -> None:
    """Print the list, or the comparison."""
    arguments = parse(RunsArguments, "ppolm runs", argv)
    folders = [Path(folder) for folder in arguments.folders]
    for folder in folders:
        if not folder.is_dir() and arguments.folders != DEFAULT:
            raise ConfigError(f"There is no folder {brief(str(folder))}. Give run folders, or folders that hold some.")
    if len(folders) > 1 and all(map(is_run, folders)):
        from ppolm.cli.runs_side_by_side import compare

        found, lines = compare(label_runs(list(dict.fromkeys(folders))), terminal_width())
        print_lines([json_text(found, indent=1)] if arguments.json else lines)
        return
    runs = [path for folder in folders for path in find_runs(folder)]
    listed = select({name: overview(path) for name, path in label_runs(runs).items()}, arguments)
    if arguments.json:
        paths = label_runs(runs)
        rows = [{"path": os.fsencode(paths[name]).decode(errors="replace"), **one.to_dict()} for name, one in listed]
        print_lines([json_text(rows, indent=1)])
    elif not listed:
        print_lines([nothing_to_list(arguments, len(runs))])
    else:
        print_lines(table_lines(list_columns(listed, draws_blocks()), terminal_width()))


def label_runs(paths: Sequence[Path]) -> dict[str, Path]:
    """Runs by what they are called here: the folder's name, or its path where two have the same."""
    paths = list(dict.fromkeys(paths))
    names = Counter(path.absolute().name for path in paths)
    return {path.absolute().name if names[path.absolute().name] == 1 else str(path): path for path in paths}


def select(runs: dict[str, RunOverview], arguments: RunsArguments) -> list[tuple[str, RunOverview]]:
    """The runs that are wanted, in the order that is."""
    wanted = arguments.filter.casefold()
    found = [
        (name, one)
        for name, one in runs.items()
        if any(wanted in text.casefold() for text in (name, one.state, one.verdict, one.why))
    ]
    states = {"running": 0, "stopped": 1}

    def last(value: float | None) -> float:
        return math.inf if value is None else value

    keys: dict[str, Callable[[RunOverview], Any]] = {
        "age": lambda one: one.age,
        "name": lambda _: 0,
        "state": lambda one: states.get(one.state, 2),
        "step": lambda one: -one.step,
        "reward": lambda one: last(None if one.reward is None else -one.reward),
        "kl": lambda one: last(one.kl),
    }
    return sorted(found, key=lambda pair: (keys[arguments.sort](pair[1]), pair[0]))


def list_columns(runs: Sequence[tuple[str, RunOverview]], blocks: bool) -> list[Column]:
    """The table of some runs, a run a row."""
    every = [one for _, one in runs]
    columns = [
        Column("run", [shown(name) for name, _ in runs], least=12),
        Column("state", [state_cell(one) for one in every], leaves=2),
        Column("step", [f"{one.step}/{one.total_steps}" if one.total_steps else f"{one.step}" for one in every], True),
        Column("reward", [number_cell(one.reward) for one in every], right=True),
        Column("", [sparkline(one.sparkline) for one in every] if blocks else [""] * len(every), leaves=6),
        Column("kl", [number_cell(one.kl) for one in every], right=True, leaves=3),
        Column("best", ["-" if one.best_step is None else f"{one.best_step}" for one in every], True, leaves=5),
        Column("verdict", [shown(outcome(one))[:LONGEST_WHY] for one in every], least=10, leaves=1),
        Column("age", [duration(one.age) for one in every], right=True, leaves=4),
    ]
    return [column for column in columns if any((column.title, *column.cells))]


def state_cell(one: RunOverview) -> str:
    """The state, and when a run will end."""
    return one.state if one.seconds_left is None else f"{one.state}, {duration(one.seconds_left)} left"


def number_cell(value: float | None) -> str:
    """Three digits are enough to compare runs by."""
    return "-" if value is None else f"{value:.3g}"


def duration(seconds: float) -> str:
    """12 s, 5 min, 3 h, 2 d."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def nothing_to_list(arguments: RunsArguments, runs: int) -> str:
    """Why there is no table, and what to do."""
    where = ", ".join(brief(folder) for folder in arguments.folders)
    if runs:
        return f"None of the {runs} runs in {where} has {brief(arguments.filter)} in its name, state or verdict."
    return f"There are no runs in {where}. `ppolm demo` makes one in two minutes; or name the folder that holds yours."


def terminal_width() -> int | None:
    """Columns of the terminal; None for a pipe or file, where lines may be as long as they are."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def draws_blocks() -> bool:
    """Whether the blocks of a sparkline can be printed here."""
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def print_lines(lines: Sequence[str]) -> None:
    """Print, with escapes for letters that the terminal or file cannot take."""
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        print(line.encode(encoding, "backslashreplace").decode(encoding))
