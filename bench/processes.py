"""Two processes with a thread each beside one process with one thread: scoring and updates of a model that matters.

    python -m bench.processes [--rounds 3] [--processes 2]

A random Qwen3 of 0.1 billion parameters. The two sides run in turn, so that a change of the machine's speed meets both;
the ratio is that of their medians. Prints one line per phase.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SHAPE = {
    "hidden_size": 768,
    "intermediate_size": 2304,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 32000,
}
SEQUENCES, PROMPT, ANSWER = 32, 96, 48
PHASES = ("scoring", "update")


def make_model(folder: str) -> int:
    """A model folder with random weights; how many parameters it has."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    from bench.shapes import EOS, PAD, make_tokenizer

    torch.manual_seed(0)
    special: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": None}
    config = Qwen3Config(**SHAPE, max_position_embeddings=512, tie_word_embeddings=True, **special)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return int(model.num_parameters())


def work(folder: str) -> None:
    """One side: score sequences with policy and reference, then one update of the policy; prints seconds as JSON."""
    import torch

    from ppolm.base_setup.model_setup import setup_models
    from ppolm.batches.sequences import TokenSequences
    from ppolm.config import PPOConfig
    from ppolm.training.updater import Updater

    config = PPOConfig(model_name=folder, device="cpu", dtype="float32", threads=1, reward=("length",), lora_r=16)
    models = setup_models(config)
    random = torch.Generator().manual_seed(1)

    def ids(length: int) -> torch.Tensor:
        return torch.randint(2, 4096, (length,), generator=random)

    sequences = TokenSequences([ids(PROMPT) for _ in range(SEQUENCES)], [ids(ANSWER) for _ in range(SEQUENCES)])
    updater = Updater("policy", models.policy.parameters(), 1e-5, 1e-8, 0.0, 1.0, 3, models.setup.ranks)

    def update() -> None:
        with models.policy.active(trainable=True):
            batches = models.policy.microbatches(sequences, config.microbatch_tokens)
            updater.update(batches, lambda batch: -models.policy.token_logprobs(batch, 1.0)[0].sum() / SEQUENCES)

    seconds: dict[str, float] = {}
    for phase in ("warm-up", *PHASES):
        models.setup.ranks.gather(None)  # both begin together
        began = time.perf_counter()
        if phase == "update":
            update()
        else:
            models.policy.logprobs(sequences, 1.0, config.microbatch_tokens)
            models.sft.logprobs(sequences, 1.0, config.microbatch_tokens)
        seconds[phase] = time.perf_counter() - began
    if models.setup.ranks.first:
        print(json.dumps(seconds), flush=True)


def measure(folder: str, processes: int) -> dict[str, float]:
    """Start one side and read what it took."""
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"] if processes > 1 else []
    command = [sys.executable, "-m", *launcher, "bench.processes", "--work", folder]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    """Both sides in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work)
        return
    with tempfile.TemporaryDirectory() as folder:
        count = make_model(folder)
        print(f"{count / 1e9:.2f} billion parameters, {SEQUENCES} sequences of {PROMPT + ANSWER} tokens, float32")
        found: dict[int, list[dict[str, float]]] = {1: [], given.processes: []}
        for _ in range(given.rounds):
            for processes, rounds in found.items():
                rounds.append(measure(str(Path(folder)), processes))
        for phase in PHASES:
            one, several = (statistics.median(row[phase] for row in rounds) for rounds in found.values())
            each = "process with one thread" if given.processes == 1 else f"{given.processes} with a thread each"
            print(f"{phase}: one process {one:.2f} s, {each} {several:.2f} s: {one / several:.2f} times as fast")


if __name__ == "__main__":
    main()
