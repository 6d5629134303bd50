"""Items of a study from a logged step of a run: the responses that its table holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from ppolm.base_setup.load_model import load_pretrained
from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.embedded import model_path
from ppolm.errors import DataError
from ppolm.feedback.record import Content, Source
from ppolm.feedback.study import Ask, Item
from ppolm.storage.code_consent import ask_consent
from ppolm.storage.stored_run import read_run_config
from ppolm.token_attribution.sa_pairs_io import from_parquet


def from_step(run: Path, step: int, ask: Ask, flags: Sequence[str] = ()) -> list[Item]:
    """The responses of a step: every two samples of one prompt, or each response by itself.

    The texts are decoded from the sampled tokens as they were for the reward, so that judgements of them are found
    again. ``flags`` are what the user typed, in case the run's tokenizer brings code of its own.
    """
    path = run / "table" / f"step-{step:06d}.parquet"
    config = read_run_config(run)
    if not path.is_file():
        raise DataError(f"Run {run} has no table of step {step}. It has: {_steps(run)}.")
    ask_consent(run, config, flags, "feedback study NAME --step-of", rewards=False)
    trusted = config.trust_remote_code or "--trust-remote-code" in flags
    tokenizer = load_pretrained(AutoTokenizer, model_path(config.anchored().model_name), trusted)
    table = from_parquet(path, TokenizerSetup(tokenizer, len(tokenizer)))
    known = _contents(run, step)
    groups: dict[int, list[tuple[int, str]]] = {}
    contents: dict[int, Content] = {}
    assert table.tokenizer is not None
    for number in range(table.num_sequences):
        begin, end = int(table.offsets[number]), int(table.offsets[number + 1])
        if begin == end:
            continue
        owner = int(table.columns["prompt_idx"][begin])
        prompt = list(table.prompts[owner])
        actions = table.columns["action_id"][begin:end].tolist()
        groups.setdefault(owner, []).append((number, table.tokenizer.decode(actions, after=prompt)))
        contents[owner] = known.get(number) or contents.get(owner) or table.tokenizer.decode_prompt(prompt)
    return [
        item for owner, made in groups.items() for item in _items(contents[owner], made, run.resolve().name, step, ask)
    ]


def _items(content: Content, made: list[tuple[int, str]], run: str, step: int, ask: Ask) -> list[Item]:
    chosen: Any = combinations(made, 2) if ask == "preference" else ((one,) for one in made)
    return [
        Item(
            content,
            tuple(text for _, text in group),
            tuple(Source(run, step, number, f"{run}, step {step}", "training") for number, _ in group),
        )
        for group in chosen
    ]


def _contents(run: Path, step: int) -> dict[int, Content]:
    """The prompts that samples.jsonl shows of a step, by sequence: chats as chats, where the table has only text."""
    found: dict[int, Content] = {}
    try:
        with (run / "samples.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if row.get("kind") == "train" and row.get("step") == step and "sequence" in row:
                    found[int(row["sequence"])] = row["prompt"]
    except (OSError, ValueError, AttributeError, TypeError):
        pass  # a sample that is missing or half written: the table says enough
    return found


def _steps(run: Path) -> str:
    """The steps that a run has tables of."""
    numbers = sorted(int(path.stem.rpartition("-")[2]) for path in (run / "table").glob("step-*.parquet"))
    shown = ", ".join(map(str, numbers[:20])) + (" ..." if len(numbers) > 20 else "")
    return shown or "none (table_every says how often one is written)"
