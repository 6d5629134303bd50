"""``ppolm sft``."""

from __future__ import annotations

from ppolm.cli.settings import parse_supervised
from ppolm.config import SFTConfig
from ppolm.data.load_rows import load_demonstrations, load_sources
from ppolm.storage.output_folder import OutputFolder


def main(argv: list[str]) -> None:
    """Train on demonstrations, and print how to use the result."""
    config, folder = parse_supervised(SFTConfig, "ppolm sft", argv)
    with folder:
        train(config, folder)


def train(config: SFTConfig, folder: OutputFolder) -> None:
    """Train into a claimed folder."""
    output = folder.path
    rows = load_sources(load_demonstrations, config.data, config)
    held_out = load_sources(load_demonstrations, config.eval_data, config) or None
    from ppolm.supervised import SFTTrainer

    trainer = SFTTrainer(config, rows, held_out)
    history = trainer.train(folder.begin(trainer.config))
    trainer.save(output)
    folder.finish()
    best = min(history, key=lambda row: row["loss"])
    print(f"Validation loss per token: {history[0]['loss']:.4f} at the start, {best['loss']:.4f} at its best.")
    model = f"--model-name {config.model_name}"
    use = f"{model} --sft-adapter {output}" if config.train == "adapter" else f"--model-name {output}"
    print(f"SFT model:   {output}\nUse it:      ppolm train {use} --prompts ...")
