"""Build the example run that the package carries, by a short PPO run on the embedded model.

    python -m scripts.build_example_run        writes src/ppolm/embedded/example/

The run is a real one, made like any other and then shortened to what pages show: no checkpoints, no events, no
pictures. With it go comparisons of its policy with its reference, for somebody to judge. Everything but times repeats
on one machine.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from ppolm.config import PPOConfig
from ppolm.config.yaml_io import read_yaml, write_yaml
from ppolm.data.load_rows import load_prompts
from ppolm.embedded import DEMO, EXAMPLE, EXAMPLE_COMPARISONS, EXAMPLE_RUN
from ppolm.ppo_trainer import PPOTrainer

POSTS = 24
"""Training posts. With 8 in a step each comes again every third step, so that its responses can be compared."""
COMPARISONS = 20
LARGEST = 600_000
"""Bytes of all of it: everybody who installs ppolm carries them."""
LEFT_OUT = ("checkpoints", "tensorboard")


def example_config(folder: Path) -> PPOConfig:
    """The demo's settings, smaller, with several responses to a prompt."""
    return dataclasses.replace(
        PPOConfig.from_yaml(DEMO),
        dtype="float32",
        lora_r=2,
        lora_alpha=4,
        batch_size=32,
        minibatch_size=16,
        samples_per_prompt=4,
        samples_per_step=2,
        max_steps=30,
        max_eval_prompts=32,
        eval_every=5,
        prompts=None,  # some posts of the embedded world, not all of them
        log_to=(),
        output_dir=str(folder),
        run_name=EXAMPLE_RUN.name,
    )


def build(output: Path) -> None:
    """Train, and write what is shown of it into ``output``."""
    torch.set_num_threads(2)  # sums of floats depend on how they are divided
    with tempfile.TemporaryDirectory() as scratch:
        config = example_config(Path(scratch))
        results = PPOTrainer(config).train(
            load_prompts("embedded")[:POSTS], eval_prompts=load_prompts(str(config.eval_prompts))
        )
        print(results.summary())
        shorten(results.run_dir)
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(results.run_dir, output / EXAMPLE_RUN.name)
    rows = comparisons(output / EXAMPLE_RUN.name, results.performance.best_step if results.performance else 0)
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    (output / EXAMPLE_COMPARISONS.name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    print(f"{output}: {size:,} bytes, {len(rows)} comparisons")
    if size > LARGEST:
        raise SystemExit(f"That is more than {LARGEST:,} bytes: fewer tables, or smaller adapters.")


def shorten(run: Path) -> None:
    """Leave out what no page shows, and the folder that it was made in."""
    for name in LEFT_OUT:
        shutil.rmtree(run / name, ignore_errors=True)
    for file in (*run.glob(".*"), *run.glob("report/*.png")):
        file.unlink()
    summary = run / "report" / "summary.md"
    text = summary.read_text(encoding="utf-8")
    summary.write_text("\n".join(line for line in text.splitlines() if not line.startswith("![")) + "\n")
    write_yaml(run / "config.yaml", {**read_yaml(run / "config.yaml"), "output_dir": "runs"})
    for file in run.rglob("*.safetensors"):
        file.chmod(0o644)  # written for their owner alone; whoever installs the package reads these


def comparisons(run: Path, best: int) -> list[dict[str, Any]]:
    """Held-out posts with the answers of the reference (the policy before training) and of the best policy."""
    lines = (run / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["kind"] == "eval"]
    before, after = ({row["sequence"]: row for row in rows if row["step"] == step} for step in (0, best))
    pairs = ((before[number], after[number]) for number in sorted(before))
    return [
        {
            "prompt": old["prompt"],
            "first": old["response"],
            "second": new["response"],
            "first_policy": "reference",
            "second_policy": "best",
        }
        for old, new in pairs
        if old["response"] != new["response"]
    ][:COMPARISONS]


if __name__ == "__main__":
    build(EXAMPLE)
