"""``ppolm readiness``."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import tyro

from ppolm.cli.settings import MachineArguments, parse
from ppolm.config import ModelSettings
from ppolm.data.load_rows import load_judgements
from ppolm.errors import ConfigError
from ppolm.ranks import join_ranks
from ppolm.ranks.checksums import digest
from ppolm.storage.atomic import explained
from ppolm.storage.claim import claim_together
from ppolm.storage.output_folder import claim_result

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadinessArguments(MachineArguments):
    """Measure a reward model on judgements that it was not trained on, and say whether PPO should trust it."""

    reward_model: tyro.conf.Positional[str]
    """Folder of a reward model, or embedded."""
    data: tuple[str, ...] = ()
    """Preferences, scores or thumbs: .jsonl(.gz), .csv or .parquet files, or dataset names."""
    dataset_split: str = "train"
    """Split to read if a dataset's name does not end in one (name:split or name/config:split)."""
    skip_bad_rows: bool = False
    """Leave out rows that cannot be used, and count them."""
    model_name: str | None = None
    """Base model. Default: the one the reward model was trained on."""
    mistakes: int = 5
    """How many of the most confident mistakes to show."""
    output: str | None = None
    """New folder for the report (Markdown, PNG, JSON). Default: only print."""
    json: bool = False
    """Print one JSON object instead of the summary."""


def main(argv: list[str]) -> None:
    """Load, measure, print, and write if asked."""
    arguments = parse(ReadinessArguments, "ppolm readiness", argv)
    if not arguments.data:
        raise ConfigError("There is nothing to measure on. Give --data with judgements that were not trained on.")
    if arguments.mistakes < 0:
        raise ConfigError(f"mistakes is {arguments.mistakes}, expected 0 or more.")
    if arguments.output is None:
        measure(arguments, None)
        return
    output = Path(arguments.output)
    with claim_together(lambda: claim_result(output), join_ranks()):  # fails before measuring, not after
        measure(arguments, output)


def measure(arguments: ReadinessArguments, output: Path | None) -> None:
    """Measure, print, and write a report if there is an ``output``."""
    rows = [
        row
        for source in arguments.data
        for row in load_judgements(source, arguments.dataset_split, arguments.skip_bad_rows)
    ]
    from ppolm.embedded import reward_path
    from ppolm.readiness import assess, readiness_summary, write_readiness
    from ppolm.storage.prompt_record import read_trained_on
    from ppolm.supervised.load_reward import load_reward_model

    join_ranks().agree("the judgements", digest([(row.prompt.key, row) for row in rows]))
    settings = ModelSettings(**arguments.given())
    model = load_reward_model(arguments.reward_model, arguments.model_name, settings)
    seen = read_trained_on(Path(reward_path(arguments.reward_model)))
    trained = sum(row.prompt.key in seen for row in rows)
    if trained:
        log.warning(
            "%d of these %d rows have a prompt from the training data, so the result partly measures memorisation.",
            trained,
            len(rows),
        )
    readiness = assess(rows, model.score_texts, arguments.mistakes)
    if output is not None:

        def write(folder: Path) -> None:
            with explained(folder, "measure again"):
                write_readiness(folder, readiness)

        join_ranks().do_once(lambda: write(output))
    print(json.dumps(readiness.to_dict(), indent=1) if arguments.json else readiness_summary(readiness))
    if output is not None and not arguments.json:
        print(f"\nReport: {output / 'readiness.md'}")
