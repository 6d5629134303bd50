"""``ppolm reward``."""

from __future__ import annotations

from ppolm.cli.settings import parse_supervised
from ppolm.config import RewardConfig
from ppolm.data.examples import load_preferences


def main(argv: list[str]) -> None:
    """Train on preferences, and say how to use the result."""
    config, data, output = parse_supervised(RewardConfig, "ppolm reward", argv)
    rows = load_preferences(data, config.dataset_split)
    held_out = None if config.eval_data is None else load_preferences(config.eval_data, config.dataset_split)
    from ppolm.supervised import RewardTrainer

    trainer = RewardTrainer(config, rows, held_out)
    history = trainer.train()
    trainer.save(output)
    best = min(history, key=lambda row: row["loss"])
    print(f"Held-out accuracy: {best['accuracy']:.3f} on {len(trainer.held_out)} pairs (loss {best['loss']:.4f}).")
    print(f"Reward model: {output}")
    print(f"Use it:       ppolm train --model-name {config.model_name} --reward model --reward-model {output} ...")
