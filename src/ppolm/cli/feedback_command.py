"""``ppolm feedback``: import, export, stats, study and label."""

from __future__ import annotations

import dataclasses
import difflib
import getpass
import json
import math
import sys
import time
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
    from ppolm.feedback.judge import Score
    from ppolm.feedback.record import Content, Record
    from ppolm.feedback.store import FeedbackStore

STORE_POLL_SECONDS = 0.5
"""How often to look whether a store is there."""


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
    """Count judgements, measure how far annotators agree, and give the win rates of policies."""

    json: bool = False
    """Print one JSON object instead of tables."""


@dataclass(frozen=True)
class LabelArguments(StoreArguments):
    """Judge, one task after the other, without seeing who answered or what others said."""

    annotator: str | None = None
    """Your name. Default: the one you are logged in with, or the name of the judge."""
    judge: str | None = None
    """Let this judge answer in the place of a person, in the forms of --reward: module:function, path/file.py:function,
    http(s)://... or gold. The response with the higher score is preferred; equal scores are a tie."""
    study: str | None = None
    """Judge the items of this study. Default: what a run waits for, then all studies, then what else is queued."""
    run: str | None = None
    """Judge only what this run has queued: the name of its folder."""
    ask: Literal["score", "thumb", "preference"] | None = None
    """Give each queued response a number or a thumb, or compare the responses to one prompt pairwise. Default: score.
    A study says itself what it asks."""
    follow: bool = False
    """Wait for more when nothing is left, and for the store if there is none yet, as beside a training run. Ctrl-C
    ends it."""


def main(argv: list[str]) -> None:
    """Run one of the five."""
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
    from ppolm.cli.feedback_tables import people_lines, stats_lines, win_rate_lines
    from ppolm.feedback.people import gold_answers, people_figures
    from ppolm.feedback.store import FeedbackStore
    from ppolm.feedback.study import all_studies, count_items
    from ppolm.feedback.summary import summarise
    from ppolm.feedback.win_rates import win_rates

    store = FeedbackStore(arguments.store, create=False)
    records = store.records()
    summary, waiting = summarise(records), len(store.waiting())
    people, rates = people_figures(records, gold_answers(store)), win_rates(records)
    studies = {study.id: study for study in all_studies(store)}
    if arguments.json:
        kinds = {kind: dataclasses.asdict(one) for kind, one in summary.items()}
        more = {
            "people": [dataclasses.asdict(one) for one in people],
            "win_rates": [dataclasses.asdict(one) for one in rates],
            "studies": [
                {"id": study.id, "name": study.name, "kind": study.kind, "items": count_items(store, study)}
                for study in studies.values()
            ],
        }
        print(json.dumps({"store": store.name, "queued": waiting, **kinds, **more}, indent=1))
        return
    lines = [*stats_lines(store.name, summary, waiting), *people_lines(people), *win_rate_lines(rates, studies)]
    print(printable("\n".join(lines)))


def label(argv: list[str]) -> None:
    """Ask for a judgement of every waiting response."""
    arguments = parse(LabelArguments, "ppolm feedback label", argv)
    from ppolm.cli.feedback_tables import number_of
    from ppolm.feedback.judge import judge_all
    from ppolm.feedback.label import Labeller

    score = None if arguments.judge is None else judge_of(arguments.judge)
    store = open_store(arguments.store, arguments.follow)
    if store is None:
        return
    annotator = arguments.annotator or arguments.judge or login_name()
    labeller = Labeller(store, annotator, arguments.ask, arguments.follow, study=arguments.study, run=arguments.run)
    print(printable(f"Judging as {annotator} in {store.name}."))
    saved = labeller.run() if score is None else judge_all(labeller.desk, score, arguments.follow)
    left = labeller.desk.progress().left
    print(f"{number_of(saved, 'judgement')} saved in {store.name}; {number_of(left, 'task')} left.")


def judge_of(name: str) -> Score:
    """The judge of this name: a number for each response, or an error that says which one has none."""
    from ppolm.config import PPOConfig
    from ppolm.data.prompts import as_prompts
    from ppolm.errors import RewardError
    from ppolm.rewards.build import build_reward
    from ppolm.rewards.protocol import scores_or_errors

    if name in ("human", "model"):
        raise ConfigError(
            f"{name!r} is no judge here. Expected module:function, path/file.py:function, http(s)://... or gold."
        )
    reward = build_reward(name, PPOConfig(), None)

    def score(contents: Sequence[Content], responses: Sequence[str]) -> list[float]:
        prompts = [prompt.content for prompt in as_prompts(contents)]
        numbers = []
        for found in scores_or_errors(reward, name, prompts, responses, {}):
            if isinstance(found, RewardError):
                raise found
            numbers.append(found if isinstance(found, float) else math.fsum(found))
        return numbers

    return score


def open_store(place: str, follow: bool) -> FeedbackStore | None:
    """The store; with ``follow``, once somebody has made it. None if the annotator leaves before."""
    from ppolm.errors import NoStoreError
    from ppolm.feedback.store import FeedbackStore

    told = False
    while True:
        try:
            return FeedbackStore(place, create=False)
        except NoStoreError as error:
            if not follow:
                raise
            if not told:
                print(printable(f"{error} Waiting for it; Ctrl-C ends this."), flush=True)
            told = True
        try:
            time.sleep(STORE_POLL_SECONDS)
        except KeyboardInterrupt:
            return None


def login_name() -> str:
    """The user's name on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise ConfigError("Your name is not known here. Give --annotator.") from None


def study(argv: list[str]) -> None:
    """Set up what people are to judge."""
    from ppolm.cli.feedback_study import study as make_study

    make_study(argv)


ACTIONS: dict[str, tuple[Callable[[list[str]], None], str]] = {
    "import": (import_files, "store the judgements of files: comparisons, scores, thumbs"),
    "export": (export, "write judgements to a file that `ppolm reward --data` reads"),
    "stats": (stats, "counts, conflicts, win rates, and how far annotators agree with others and themselves"),
    "study": (study, "set up what people are to judge: two policies, one sampled twice, a file, a logged step"),
    "label": (label, "judge: what a run waits for, the items of a study, queued responses"),
}
