"""``ppolm reward``."""

from __future__ import annotations

import sys

from ppolm.cli.settings import parse_supervised
from ppolm.config import RewardConfig
from ppolm.data.load_rows import load_demonstrations, load_judgements, load_sources
from ppolm.storage.output_folder import OutputFolder


def main(argv: list[str]) -> None:
    """Train on judgements, and print the readiness of the reward model and how to use it."""
    config, folder = parse_supervised(RewardConfig, "ppolm reward", argv)
    with folder:
        train(config, folder)


def train(config: RewardConfig, folder: OutputFolder) -> None:
    """Train into a claimed folder."""
    output = folder.path
    rows = load_sources(load_judgements, config.data, config)
    held_out = load_sources(load_judgements, config.eval_data, config) or None
    references = load_sources(load_demonstrations, config.reference_data, config)
    test = load_sources(load_judgements, config.test_data, config)
    from ppolm.readiness import assess, readiness_summary, write_readiness
    from ppolm.supervised import RewardTrainer

    trainer = RewardTrainer(config, rows, held_out, references)
    test = trainer.readable(test)  # rows that are too long should fail now, not after training
    trainer.train(folder.begin(trainer.config))
    trainer.save(output)  # before anything else can go wrong
    measured = test or [row.judgement for row in trainer.held_out]
    readiness = assess(measured, trainer.model.score_texts, chose_weights=not test)
    trainer.save(output, add=lambda folder: write_readiness(folder, readiness))
    folder.finish()
    print(readiness_summary(readiness))
    seen = trainer.prompts_seen(test)
    if seen:
        print(f"warning: {seen} of the {len(test)} test rows have a prompt that was trained on.", file=sys.stderr)
    print(f"\nReward model: {output}\nReport:       {output / 'readiness.md'}")
    print(f"Use it:       ppolm train --model-name {config.model_name} --reward model --reward-model {output} ...")
