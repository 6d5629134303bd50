"""``ppolm train``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ppolm.cli.settings import TrainArguments, parse_train, see_it
from ppolm.config import PPOConfig
from ppolm.config.compared import compared
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
    if arguments.estimate:
        print_estimate(config)
        return
    from ppolm.ppo_trainer import PPOTrainer

    config = checked(config, arguments, argv)
    prompts, held_out = load_both(config)
    trainer = PPOTrainer(config)
    results = trainer.train(prompts, config.num_epochs, eval_prompts=held_out, resume=arguments.resume)
    print(results.summary())
    print(f"Try it:      ppolm generate --run {results.run_dir} --prompt '...'")
    print(see_it(results.run_dir))


def checked(config: PPOConfig, arguments: TrainArguments, argv: list[str]) -> PPOConfig:
    """The settings to train with, once it is known that the run can begin or go on: before anything large is loaded."""
    from ppolm.runs.run_start import run_path
    from ppolm.storage.code_consent import ask_consent
    from ppolm.storage.refuse_changes import refuse_changes
    from ppolm.storage.starting_point import resumed_start, started
    from ppolm.storage.stored_run import read_run_config, run_of

    ranks, resume = join_ranks(), arguments.resume
    decisive = {**compared(config), "--resume": resume is not None}  # for what each process does next
    ranks.agree_on(" in their settings", decisive)
    if resume is None:
        if config.run_name:
            ranks.do_once(lambda: refuse_folder(run_path(config)))
        if config.start_from is not None and arguments.config is None:  # its code, too, comes from that run
            origin = run_of(Path(config.start_from))
            ranks.do_once(lambda: ask_consent(origin, config, argv, "train --start-from"))
        return started(config, all_said=arguments.config is None)  # the others are those of that run already
    run = run_of(Path(resume))
    ranks.do_once(lambda: refuse_resume(Path(resume)))
    saved = read_run_config(run)
    if config.dtype == "auto":
        config = dataclasses.replace(config, dtype=saved.dtype)
    config = started(resumed_start(config, run))
    refuse_changes(saved.to_dict(), config, run)
    ranks.do_once(lambda: ask_consent(run, config, argv, "train --resume"))
    return config


def refuse_folder(path: Path) -> None:
    """Raise unless a new run can be begun in a folder."""
    from ppolm.runs.run_folder import IN_USE, refuse_used_folder
    from ppolm.storage.claim import refuse_claimed

    refuse_claimed(path, IN_USE)
    refuse_used_folder(path)


def refuse_resume(path: Path) -> None:
    """Raise unless there is a run to resume. Asked by one process: each would find the lock that another one tries."""
    from ppolm.runs.run_folder import IN_USE
    from ppolm.storage.claim import refuse_claimed
    from ppolm.storage.stored_run import find_checkpoint, run_of

    refuse_claimed(run_of(path), IN_USE)
    find_checkpoint(path)


def print_estimate(config: PPOConfig) -> None:
    """Print what a training run would take; nothing is written."""
    from ppolm.estimate import estimate

    print(estimate(config, *load_both(config)).measured_text())


def load_both(config: PPOConfig) -> tuple[list[Prompt], list[Prompt] | None]:
    """Prompts to train on, and those to evaluate on if they are given."""

    def load(source: str) -> list[Prompt]:
        return load_prompts(source, config.dataset_split, config.skip_bad_rows)

    return load(str(config.prompts)), None if config.eval_prompts is None else load(config.eval_prompts)
