"""``ppolm train``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ppolm.cli.settings import parse_train, see_it
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.data.prompts import Prompt
from ppolm.errors import ConfigError
from ppolm.names import EMBEDDED
from ppolm.ranks import join_ranks


def main(argv: list[str]) -> None:
    """Train, and print where the result is."""
    arguments = parse_train(argv)
    config = arguments.settings
    if config.prompts is None and config.model_name == EMBEDDED:
        config = dataclasses.replace(config, prompts=EMBEDDED)
    if config.prompts is None:
        raise ConfigError(
            "There are no prompts to train on. Give --prompts with a .jsonl, .csv, .parquet or .txt file, or a "
            "dataset name."
        )
    from ppolm.ppo_trainer import PPOTrainer
    from ppolm.runs.resume import find_checkpoint, run_of
    from ppolm.runs.run_folder import IN_USE, read_run_config, refuse_used_folder
    from ppolm.runs.training_run import run_path
    from ppolm.storage.claim import refuse_claimed
    from ppolm.storage.code_consent import ask_consent
    from ppolm.storage.refuse_changes import refuse_changes

    if arguments.estimate:
        print_estimate(config)
        return
    if arguments.resume is None and config.run_name:  # fail before anything large is loaded
        refuse_claimed(run_path(config), IN_USE)
        refuse_used_folder(run_path(config))
    elif arguments.resume is not None:
        run = run_of(Path(arguments.resume))
        refuse_claimed(run, IN_USE)
        find_checkpoint(Path(arguments.resume))
        saved = read_run_config(run)
        if config.dtype == "auto":
            config = dataclasses.replace(config, dtype=saved.dtype)
        refuse_changes(saved.to_dict(), config, run)
        join_ranks().do_once(lambda: ask_consent(run, config, argv, "train --resume"))
    prompts, held_out = load_both(config)
    trainer = PPOTrainer(config)
    results = trainer.train(prompts, config.num_epochs, eval_prompts=held_out, resume=arguments.resume)
    print(results.summary())
    print(f"Try it:      ppolm generate --run {results.run_dir} --prompt '...'")
    print(see_it(results.run_dir))


def print_estimate(config: PPOConfig) -> None:
    """Print what a training run would take; nothing is written."""
    from ppolm.estimate import estimate

    print(estimate(config, *load_both(config)).measured_text())


def load_both(config: PPOConfig) -> tuple[list[Prompt], list[Prompt] | None]:
    """Prompts to train on, and those to evaluate on if they are given."""

    def load(source: str) -> list[Prompt]:
        return load_prompts(source, config.dataset_split, config.skip_bad_rows)

    return load(str(config.prompts)), None if config.eval_prompts is None else load(config.eval_prompts)
