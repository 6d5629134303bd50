"""`ppolm plan` beside what a run really takes on this machine: memory of each process, and seconds of a step.

    python -m bench.plan [--rounds 3] [--cases demo medium two-processes llama] [--cpu-seconds]

Every case is planned by `ppolm plan --json`, with its probe, and then trained with `ppolm train` for a few steps, in
turns. Times are medians over all steps but the first, and over the rounds; memory is the peak of a process (VmHWM).
Prints a Markdown table with the ratio planned / measured. Beside busy programs the clock says little: with
--cpu-seconds probe and run both count the seconds that a processor worked for them.
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
from dataclasses import dataclass, field
from pathlib import Path
from shlex import split
from typing import Any

from bench.machine import busy_programs, peak_gib

CPU_SECONDS = "PPOLM_BENCH_CPU_SECONDS"
STEPS = 3
PROMPT = 96
"""Tokens of a prompt of the random models, whose tokens are bytes."""
WIDE = {"hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 12, "num_attention_heads": 12}
WIDE |= {"num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000}
NARROW = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 6}
NARROW |= {"num_key_value_heads": 6, "head_dim": 64, "vocab_size": 8192}
RANDOM = ["--reward", "bench.plan:by_length", "--log-to", "--eval-every", "0", "--max-steps", str(STEPS)]
RANDOM += ["--table-every", "0", "--checkpoint-every", "1000", "--top-k", "0", "--top-p", "1"]


@dataclass(frozen=True)
class Case:
    """A model with settings, and how many processes train it."""

    about: str
    flags: list[str]
    model: tuple[str, dict[str, int]] | None = None
    """Family and shape of a random model; None: the embedded one."""
    processes: int = 1
    planned: list[str] = field(default_factory=list)
    """Flags of the plan alone."""


CASES = {
    "demo": Case(
        "embedded model, settings of the demo, one thread",
        split(f"--model-name embedded --max-steps {STEPS + 2} --eval-every 0 --threads 1"),
        planned=["--response-tokens", "24"],
    ),
    "medium": Case(
        "random Qwen3 of 0.11 B, 16 responses of 32 tokens, 2 epochs, one thread",
        RANDOM + split("--batch-size 16 --minibatch-size 8 --max-new-tokens 32 --ppo-epochs 2 --threads 1"),
        ("qwen3", WIDE),
    ),
    "two-processes": Case(
        "the same model in two processes with a thread each, 24 responses of 24 tokens, one epoch",
        RANDOM + split("--batch-size 24 --minibatch-size 12 --max-new-tokens 24 --ppo-epochs 1 --threads 1"),
        ("qwen3", WIDE),
        processes=2,
    ),
    "llama": Case(
        "random Llama of 0.02 B, 32 responses of 64 tokens, 4 per prompt, 4 of 8 blocks trained, two threads",
        RANDOM
        + split("--batch-size 32 --minibatch-size 16 --samples-per-prompt 4 --max-new-tokens 64 --threads 2")
        + split("--trainable-layers 4 --ppo-epochs 2 --lora-r 8"),
        ("llama", NARROW),
    ),
}


def by_length(prompts: list[str], responses: list[Any]) -> list[float]:  # noqa: ARG001
    """A reward for the random models."""
    return [float(len(response)) for response in responses]


def make_model(kind: str, shape: dict[str, int], folder: Path) -> None:
    """A model folder with random weights, and prompts for it."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

    from bench.shapes import EOS, PAD, make_tokenizer

    torch.manual_seed(0)
    special: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": None}
    made: Any = Qwen3Config if kind == "qwen3" else LlamaConfig
    config = made(**shape, max_position_embeddings=512, tie_word_embeddings=True, **special)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    rows = [f"{number:04d} " + "x" * (PROMPT - 5) for number in range(200)]
    (folder / "prompts.txt").write_text("\n".join(rows))


def work(command: str, arguments: list[str]) -> None:
    """One process of a plan or training; the peak of a training's process goes to a file of its own."""
    if os.environ.get(CPU_SECONDS):
        time.perf_counter = time.process_time
    from ppolm.cli.main import run

    status = run([command, *arguments])
    if command == "train":
        place = Path(arguments[arguments.index("--output-dir") + 1])
        (place / f"peak-{os.environ.get('RANK', '0')}").write_text(str(peak_gib()))
    sys.exit(status)


def started(words: list[str], processes: int = 1) -> str:
    """What a command of ppolm prints, run by ``work``."""
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    command = [sys.executable, "-m", *(launcher if processes > 1 else []), "bench.plan", "--work", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout


def plan(case: Case, flags: list[str]) -> dict[str, Any]:
    """What `ppolm plan` says."""
    return dict(json.loads(started(["plan", *flags, "--devices", str(case.processes), *case.planned, "--json"])))


def train(case: Case, flags: list[str], folder: Path) -> tuple[float, list[dict[str, float]]]:
    """Peak GiB of a process, and the seconds of every step but the first by phase."""
    started(["train", *flags, "--output-dir", str(folder), "--run-name", "run"], case.processes)
    peak = max(float(file.read_text()) for file in folder.glob("peak-*"))
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "seconds/generate" in row][1:]
    return peak, [{name: value for name, value in row.items() if name.startswith("seconds/")} for row in steps]


def measure(case: Case, rounds: int) -> dict[str, float]:
    """Planned and measured figures of a case: medians over rounds, the plan and the run in turns."""
    found: dict[str, list[float]] = {"planned_gib": [], "gib": [], "planned_s": [], "s": []}
    with tempfile.TemporaryDirectory() as name:
        folder, flags = Path(name), list(case.flags)
        if case.model is not None:
            make_model(*case.model, folder / "model")
            flags += ["--model-name", str(folder / "model"), "--prompts", str(folder / "model" / "prompts.txt")]
        for number in range(rounds):
            said = plan(case, flags)
            peak, steps = train(case, flags, folder / str(number))
            found["planned_gib"].append(said["memory_bytes"]["peak"] / 2**30)
            found["planned_s"].append(said["seconds"]["step"])
            found["gib"].append(peak)
            found["s"].append(statistics.median(sum(step.values()) for step in steps))
            phases = {phase: statistics.median(step[phase] for step in steps) for phase in steps[0]}
            details = {name: round(value, 2) for name, value in said["seconds"].items() if isinstance(value, float)}
            print(case.about, details, {phase: round(value, 2) for phase, value in phases.items()}, file=sys.stderr)
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    """All cases, as a table."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--cpu-seconds", action="store_true")
    given = parser.parse_args()
    if given.cpu_seconds:
        os.environ[CPU_SECONDS] = "1"
    busy = busy_programs()
    if busy:
        print(f"Other programs are busy, so times are not to be trusted: {busy}", file=sys.stderr)
    print("| case | memory planned, GiB | measured | ratio | step planned, s | measured | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name in given.cases:
        one = measure(CASES[name], given.rounds)
        memory = f"{one['planned_gib']:.2f} | {one['gib']:.2f} | {one['planned_gib'] / one['gib']:.2f}"
        seconds = f"{one['planned_s']:.2f} | {one['s']:.2f} | {one['planned_s'] / one['s']:.2f}"
        print(f"| {CASES[name].about} | {memory} | {seconds} |", flush=True)


if __name__ == "__main__":
    main()
