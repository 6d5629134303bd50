"""How near exports are to the policy: the table of docs/exporting.md, measured.

    python -m scripts.export_table [RUN [PROMPTS]]

Every form and precision is written, loaded in plain transformers by a program without ppolm, and compared with what
the policy itself says on held-out prompts: its greedy texts, and the log-probabilities of its own samples.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import transformers

from ppolm.data.prompts import Prompt
from ppolm.embedded import EXAMPLE_RUN
from ppolm.export.export import Form, Plan, Precision, export
from ppolm.export.source import find_source
from ppolm.ppo_trainer.side_by_side import SideBySide
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from ppolm.storage.prompt_record import read_held_out

PROGRAM = Path(__file__).with_name("plain_answers.py")
FORMS: tuple[tuple[Form, Precision], ...] = (
    *(("merged", name) for name in ("float32", "bfloat16", "float16")),
    *(("gguf", name) for name in ("float32", "bfloat16", "float16", "q8_0")),
)


@dataclass(frozen=True)
class Said:
    """What the policy says to some prompts."""

    prompts: list[str]
    greedy: list[list[int]]
    sampled: list[list[int]]
    logprobs: list[list[float]]
    longest: int


def policy_says(run: Path, prompts: Sequence[Prompt]) -> Said:
    """Greedy answers of the run's best policy, and samples with the log-probabilities that they were drawn with."""
    both = SideBySide(run)
    sampling = Sampling.of(both.config)
    greedy = Generator(both.policy, both.setup, dataclasses.replace(sampling, greedy=True)).generate(prompts)[0]
    sampled, logprobs = Generator(both.policy, both.setup, sampling, 1).generate(prompts)
    return Said(
        [str(prompt.content) for prompt in prompts],
        [text.token_ids for text in greedy],
        [text.token_ids for text in sampled],
        [numbers.tolist() for numbers in logprobs],
        sampling.max_new_tokens,
    )


def exported_says(folders: Sequence[Path], said: Said) -> list[list[dict[str, Any]]]:
    """What exports say to the same prompts, and of the same samples, in a program without ppolm."""
    requests = [
        {
            "folder": str(folder),
            "gguf_file": next((file.name for file in folder.glob("*.gguf")), None),
            "prompts": said.prompts,
            "given": said.sampled,
            "max_new_tokens": said.longest,
        }
        for folder in folders
    ]
    ended = subprocess.run(
        [sys.executable, str(PROGRAM)], input=json.dumps(requests), capture_output=True, text=True, check=True
    )
    found: list[list[dict[str, Any]]] = json.loads(ended.stdout)
    return found


def measure(run: Path, folder: Path, count: int) -> Iterator[tuple[Form, Precision, int, float, float]]:
    """Of each form: equal greedy answers, and the mean and largest difference of a log-probability."""
    source, prompts = find_source(run), read_held_out(run)[:count]
    folders = []
    for form, precision in FORMS:
        folders.append(folder / f"{form}-{precision}")
        export(source, folders[-1], Plan(form, precision))
    said = policy_says(run, prompts)
    for (form, precision), found in zip(FORMS, exported_says(folders, said), strict=True):
        same = sum(one["ids"] == ids for one, ids in zip(found, said.greedy, strict=True))
        pairs = zip(found, said.logprobs, strict=True)
        off = np.concatenate([np.abs(np.subtract(one["logprobs"], logprobs)) for one, logprobs in pairs])
        yield form, precision, same, float(off.mean()), float(off.max())


def main(run: Path = EXAMPLE_RUN, count: int = 32) -> None:
    """Print the rows."""
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        for form, precision, same, mean, largest in measure(run, Path(folder), count):
            print(f"| {form} | {precision} | {same} of {count} | {mean:.1g} | {largest:.1g} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else EXAMPLE_RUN, int(sys.argv[2]) if len(sys.argv) > 2 else 32)
