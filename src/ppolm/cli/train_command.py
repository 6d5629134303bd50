"""``ppolm train``."""

from __future__ import annotations

from ppolm.cli.settings import parse_train
from ppolm.data.load_prompts import load_prompts
from ppolm.errors import ConfigError


def main(argv: list[str]) -> None:
    """Train, and say where the result is."""
    arguments = parse_train(argv)
    config = arguments.settings
    if config.prompts is None:
        raise ConfigError(
            "There are no prompts to train on. Give --prompts with a .jsonl, .csv, .parquet or .txt file, or a "
            "dataset name."
        )
    from ppolm.ppo_trainer import PPOTrainer

    prompts = load_prompts(config.prompts, config.dataset_split)
    held_out = None if config.eval_prompts is None else load_prompts(config.eval_prompts, config.dataset_split)
    trainer = PPOTrainer(config)
    results = trainer.train(prompts, config.num_epochs, eval_prompts=held_out, resume=arguments.resume)
    print(results.summary())
    print(f"Try it:      ppolm generate --run {results.run_dir} --prompt '...'")
