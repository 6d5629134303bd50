"""``ppolm sft``."""

from __future__ import annotations

from ppolm.cli.settings import parse_supervised
from ppolm.config import SFTConfig
from ppolm.data.examples import load_demonstrations


def main(argv: list[str]) -> None:
    """Train on demonstrations, and say how to use the result."""
    config, data, output = parse_supervised(SFTConfig, "ppolm sft", argv)
    rows = load_demonstrations(data, config.dataset_split)
    held_out = None if config.eval_data is None else load_demonstrations(config.eval_data, config.dataset_split)
    from ppolm.supervised import SFTTrainer

    trainer = SFTTrainer(config, rows, held_out)
    history = trainer.train()
    trainer.save(output)
    best = min(history, key=lambda row: row["loss"])
    print(f"Validation loss per token: {history[0]['loss']:.4f} at the start, {best['loss']:.4f} at its best.")
    model = f"--model-name {config.model_name}"
    use = f"{model} --sft-adapter {output}" if config.train == "adapter" else f"--model-name {output}"
    print(f"SFT model:   {output}\nUse it:      ppolm train {use} --prompts ...")
