"""``ppolm data check``."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tqdm import tqdm

from ppolm.cli.settings import parse
from ppolm.data.prompts import Prompt
from ppolm.data.read_rows import read_rows
from ppolm.errors import ConfigError, DataError, ModelError
from ppolm.messages import brief, json_text, printable
from ppolm.names import EMBEDDED

if TYPE_CHECKING:
    from ppolm.data.tally import CountTokens

USAGE = """usage: ppolm data check FILE [FILE ...] [--help] ...

  check  what was understood of each file, bad rows, lengths, duplicates, label balance; leakage between files"""


@dataclass(frozen=True)
class CheckArguments:
    """Report how ppolm reads data files: kinds of rows, bad rows, lengths, duplicates, label balance.

    Several files are treated as the splits of one dataset, and what they share is reported. With a bad row the exit
    status is 1.
    """

    files: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FILE")] = ()
    """Files (.jsonl, .jsonl.gz, .csv, .parquet, .txt) or dataset names."""
    split: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME")] = ()
    """Split of a dataset name; give it again for more. Default: train."""
    model_name: str | None = None
    """Model folder or name: also report lengths in its tokens, and how many rows exceed its context."""
    skip_bad_rows: bool = False
    """Count bad rows, but exit with status 0."""
    json: bool = False
    """Print one JSON object."""


def main(argv: list[str]) -> None:
    """Run a sub-command; so far there is only ``check``."""
    if argv[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return
    if not argv:
        raise ConfigError("ppolm data needs to know what to do. Write: ppolm data check FILE")
    if argv[0] != "check":
        near = difflib.get_close_matches(argv[0][:100], ["check"])
        is_file = Path(argv[0]).exists()
        hint = f"Did you mean {near[0]!r}?" if near else f"Write: ppolm data check {argv[0] if is_file else 'FILE'}"
        raise ConfigError(f"Unknown sub-command {brief(argv[0])} of ppolm data. {hint}")
    check(parse(CheckArguments, "ppolm data check", argv[1:]))


def check(arguments: CheckArguments) -> None:
    """Print what was found."""
    sources = sources_of(arguments)
    from ppolm.cli.data_report import text_of
    from ppolm.data.check import leakage_of, report_of
    from ppolm.data.tally import tally_rows

    count_tokens, context = (None, None) if arguments.model_name is None else load_counter(arguments.model_name)
    tallies = []
    for name, source, split in sources:
        rows = tqdm(
            read_rows(source, split), desc="reading", unit=" rows", leave=False, disable=not sys.stderr.isatty()
        )
        tallies.append(tally_rows(rows, name, count_tokens))
    found = {"files": [report_of(tally, context) for tally in tallies], "leakage": leakage_of(tallies)}
    print(json_text(found, indent=1) if arguments.json else printable(text_of(found)))
    bad = sum(tally.bad for tally in tallies)
    if bad and not arguments.skip_bad_rows:
        rows = "1 row is" if bad == 1 else f"{bad:,} rows are"
        raise DataError(f"{rows} bad. Fix the files, or leave bad rows out with --skip-bad-rows, here and in training.")


def sources_of(arguments: CheckArguments) -> list[tuple[str, str, str]]:
    """Name, source and split of everything to check."""
    if not arguments.files:
        raise ConfigError("There is nothing to check. Write: ppolm data check FILE")
    sources = []
    for source in arguments.files:
        if Path(source).expanduser().is_file() or source.startswith(f"{EMBEDDED}:"):
            sources.append((source, source, "train"))
        else:  # a dataset has splits
            splits = arguments.split or ("train",)
            names = [f"{source} ({split})" for split in splits] if arguments.split else [source]
            sources += [(name, source, split) for name, split in zip(names, splits, strict=True)]
    names = [name for name, _, _ in sources]
    if len(set(names)) < len(names):
        raise ConfigError(f"The same data is named twice: {', '.join(names)}. Name each file once.")
    if arguments.split and all(source == name for name, source, _ in sources):
        raise ConfigError("--split chooses splits of a dataset name, and only files were given. Leave it out.")
    return sources


def load_counter(name: str) -> tuple[CountTokens, int | None]:
    """A counter of tokens by the model's tokenizer, and the model's context length if its config has one."""
    from transformers import AutoConfig, AutoTokenizer

    from ppolm.base_setup.load_model import blaming, explain_failure
    from ppolm.base_setup.tokenizer_setup import TokenizerSetup
    from ppolm.data.hub import hub_is_reachable
    from ppolm.embedded import model_path

    source = model_path(name)
    is_path = Path(source).expanduser().is_dir()
    if is_path:
        source = str(Path(source).expanduser())
    elif source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise ModelError(f"Model folder {source} does not exist. Give a folder with a tokenizer, or a name on the Hub.")
    options = {"local_files_only": is_path or not hub_is_reachable()}
    try:  # a folder with only a tokenizer is enough
        loaded = AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:  # transformers does not validate a model's files, and may raise anything
        raise ModelError(explain_failure(AutoTokenizer, name, is_path, options["local_files_only"], error)) from error
    with blaming(name):
        empty = not loaded("any text")["input_ids"]
    if empty:  # transformers makes an empty one when the files are missing
        raise ModelError(f"Model {name} has no tokenizer files. Copy tokenizer.json and its config into it.")
    try:
        config: Any = AutoConfig.from_pretrained(source, **options).get_text_config()
    except Exception:  # as above; lengths do not need it
        config = None
    tokenizer = TokenizerSetup(loaded, len(loaded))

    def count(prompt: Prompt, answers: Sequence[str]) -> list[int]:
        ids = [loaded(answer, add_special_tokens=False)["input_ids"] for answer in answers]
        return [len(tokenizer.encode(prompt.content)), *map(len, ids)]

    return count, getattr(config, "max_position_embeddings", None)
