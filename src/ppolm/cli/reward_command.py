"""``ppolm reward``."""

from __future__ import annotations

from ppolm.cli.settings import parse_supervised
from ppolm.config import RewardConfig
from ppolm.data.load_rows import load_demonstrations, load_judgements, load_sources
from ppolm.runs.output_folder import begin_training


def main(argv: list[str]) -> None:
    """Train on judgements, say whether the result is any good, and how to use it."""
    config, output = parse_supervised(RewardConfig, "ppolm reward", argv)
    rows = load_sources(load_judgements, config.data, config)
    held_out = load_sources(load_judgements, config.eval_data, config) or None
    references = load_sources(load_demonstrations, config.reference_data, config)
    test = load_sources(load_judgements, config.test_data, config)
    from ppolm.evaluation.readiness import assess, write_readiness
    from ppolm.supervised import RewardTrainer

    trainer = RewardTrainer(config, rows, held_out, references)
    trainer.train(begin_training(config, output))
    readiness = assess(test or [row.judgement for row in trainer.held_out], trainer.model.score_texts)
    trainer.save(output, add=lambda folder: write_readiness(folder, readiness))
    print(readiness.summary())
    print(f"\nReward model: {output}\nReport:       {output / 'readiness.md'}")
    print(f"Use it:       ppolm train --model-name {config.model_name} --reward model --reward-model {output} ...")
