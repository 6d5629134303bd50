"""``ppolm feedback``: import, export, stats and label."""

from __future__ import annotations

import dataclasses
import difflib
import getpass
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ppolm.cli.settings import parse
from ppolm.errors import ConfigError
from ppolm.messages import brief, cut, printable

if TYPE_CHECKING:
    from ppolm.feedback.record import Record


@dataclass(frozen=True, kw_only=True)
class StoreArguments:
    """Where the judgements are."""

    store: str = "feedback.db"
    """An SQLite file, or a URL such as postgresql://user@host/db."""


@dataclass(frozen=True, kw_only=True)
class ImportArguments(StoreArguments):
    """Import judgements from files. A row that is imported twice is stored once."""

    files: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE...")]
    """.jsonl(.gz), .csv or .parquet files, or dataset names: prompt or messages, with chosen and rejected, or with
    completion and score or label."""
    annotator: str | None = None
    """Annotator for rows that name none."""
    skip_bad_rows: bool = False
    """Leave out rows that are not judgements, and say how many."""
    split: str = "train"
    """Split to read if a dataset is named."""
    again: bool = False
    """Treat every row as a new judgement, even if it was imported before."""


@dataclass(frozen=True, kw_only=True)
class ExportArguments(StoreArguments):
    """Write judgements to a new file, as training reads them."""

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """A .jsonl, .jsonl.gz, .csv or .parquet file that does not exist yet."""
    kind: Literal["preferences", "scores", "thumbs", "all"] = "all"
    """Which judgements."""
    rule: Literal["all", "latest", "majority", "mean"] = "all"
    """Of several judgements of the same item, keep all, the latest of each annotator, or one by majority or mean."""


@dataclass(frozen=True)
class StatsArguments(StoreArguments):
    """Count judgements, and measure how far annotators agree."""

    json: bool = False
    """Print one JSON object instead of tables."""


@dataclass(frozen=True)
class LabelArguments(StoreArguments):
    """Judge the responses that wait in the store, one after the other."""

    annotator: str | None = None
    """Your name. Default: your login name."""
    ask: Literal["score", "thumb", "preference"] = "score"
    """Give each response a number or a thumb, or compare the responses to one prompt pairwise."""
    follow: bool = False
    """Wait for more when nothing is left, as during a training run. Ctrl-C ends it."""


def main(argv: list[str]) -> None:
    """Run one of the four actions."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return
    if argv[0] not in ACTIONS:
        near = difflib.get_close_matches(argv[0][:100], ACTIONS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Expected one of: {', '.join(ACTIONS)}."
        raise ConfigError(f"Unknown action {brief(argv[0])} of ppolm feedback. {hint}")
    ACTIONS[argv[0]][0](argv[1:])


def usage() -> str:
    """The list of actions."""
    lines = [f"  {name:<6}  {what}" for name, (_, what) in ACTIONS.items()]
    return "\n".join(["usage: ppolm feedback ACTION [--store STORE] [--help] ...", "", *lines])


def import_files(argv: list[str]) -> None:
    """Read all files, then store all of them in one transaction."""
    arguments = parse(ImportArguments, "ppolm feedback import", argv)
    if not arguments.files:
        raise ConfigError("There is nothing to import. Name at least one .jsonl, .csv or .parquet file.")
    from ppolm.feedback.exchange import read_records
    from ppolm.feedback.store import FeedbackStore

    records = [
        record
        for file in arguments.files
        for record in read_records(file, arguments.split, arguments.annotator, arguments.skip_bad_rows, arguments.again)
    ]
    store = FeedbackStore(arguments.store)
    new = store.add(records)
    print(f"{store.name}: {new} new of {len(records)} judgements ({counted(records)})")
    if new < len(records):
        print(f"{len(records) - new} were there already, and count once.")


def counted(records: Sequence[Record]) -> str:
    """How many of each kind."""
    numbers = sorted(Counter(record.kind for record in records).items())
    return ", ".join(f"{number} {kind if number > 1 else kind[:-1]}" for kind, number in numbers)


def export(argv: list[str]) -> None:
    """Write the judgements that are left after a rule is applied."""
    arguments = parse(ExportArguments, "ppolm feedback export", argv)
    from ppolm.errors import FeedbackError
    from ppolm.feedback.exchange import loadable_rows
    from ppolm.feedback.resolve import resolve
    from ppolm.feedback.store import FeedbackStore
    from ppolm.feedback.write_rows import check_target, write_rows

    path = Path(arguments.file).expanduser()
    check_target(path)
    store = FeedbackStore(arguments.store, create=False)
    stored = store.records(None if arguments.kind == "all" else arguments.kind)
    records = resolve(stored, arguments.rule)
    rows, problems = loadable_rows(records)
    if not rows:
        what = "judgements" if arguments.kind == "all" else arguments.kind
        raise FeedbackError(f"{store.name} holds no {what} to export.")
    write_rows(path, rows)
    print(f"{path}: {len(rows)} rows from {len(stored)} judgements (rule: {arguments.rule})")
    if problems:
        first = cut(printable(str(problems[0])), 300)
        print(f"{len(problems)} left out, which training could not load. The first: {first}", file=sys.stderr)


def stats(argv: list[str]) -> None:
    """Print what the store holds."""
    arguments = parse(StatsArguments, "ppolm feedback stats", argv)
    from ppolm.cli.feedback_tables import stats_lines
    from ppolm.feedback.store import FeedbackStore
    from ppolm.feedback.summary import summarise

    store = FeedbackStore(arguments.store, create=False)
    summary, waiting = summarise(store.records()), len(store.waiting())
    if arguments.json:
        kinds = {kind: dataclasses.asdict(one) for kind, one in summary.items()}
        print(json.dumps({"store": store.name, "queued": waiting, **kinds}, indent=1))
    else:
        print(printable("\n".join(stats_lines(store.name, summary, waiting))))


def label(argv: list[str]) -> None:
    """Ask for a judgement of every waiting response."""
    arguments = parse(LabelArguments, "ppolm feedback label", argv)
    from ppolm.cli.feedback_tables import number_of
    from ppolm.feedback.label import Labeller
    from ppolm.feedback.store import FeedbackStore

    store = FeedbackStore(arguments.store, create=False)
    annotator = arguments.annotator or login_name()
    print(printable(f"Judging as {annotator} in {store.name}."))
    saved = Labeller(store, annotator, arguments.ask, arguments.follow).run()
    left = len(store.waiting())
    waits = f"{number_of(left, 'response')} still {'waits' if left == 1 else 'wait'}"
    print(f"{number_of(saved, 'judgement')} saved in {store.name}; {waits}.")


def login_name() -> str:
    """The user's name on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise ConfigError("Your name is not known here. Give --annotator.") from None


ACTIONS: dict[str, tuple[Callable[[list[str]], None], str]] = {
    "import": (import_files, "store the judgements of files: comparisons, scores, thumbs"),
    "export": (export, "write judgements to a file that `ppolm reward --data` reads"),
    "stats": (stats, "counts, duplicates, conflicts, and how far annotators agree"),
    "label": (label, "judge the responses that wait"),
}
