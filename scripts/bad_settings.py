"""Measure bad settings beside good ones on the embedded model, for the tables of docs/troubleshooting.md.

python -m scripts.bad_settings             all tables, about ten minutes on two cores
python -m scripts.bad_settings frozen      one of them
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppolm.cli.main import run
from ppolm.runs.run_overview import overview
from ppolm.runs.run_warnings import latest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "troubleshooting.md"
BASE = "ppolm train --model-name embedded --max-steps 20 --eval-every 5"
"""What every run of a table has in common: the demo's settings, shorter."""
ALIKE = "alike.py"
REWARDS = """def passes(prompts, responses):
    return [float(len(response.split()) < 100) for response in responses]


def shortness(prompts, responses):
    return [-len(response.split()) / 100 for response in responses]
"""
"""Two rewards for short responses: one that nearly every response passes, and a graded one."""
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Column:
    """A column of a table, from the rows of metrics.jsonl: training steps, then evaluations."""

    heading: str
    value: Callable[[Rows, Rows], float | None]
    digits: int = 2


def held_out(name: str) -> Callable[[Rows, Rows], float | None]:
    """A metric of the last evaluation."""
    return lambda _train, evaluations: evaluations[-1].get(name)


def last_steps(name: str) -> Callable[[Rows, Rows], float | None]:
    """The mean of a metric over the last training steps, as the warnings of a report take it."""
    return lambda train, _evaluations: latest(train, name)


GOLD = Column("gold", held_out("judge"))
REWARD = Column("reward", held_out("avg_reward"))
KL = Column("`kl`", held_out("kl"), 1)
PER_TOKEN = Column("`kl_per_token`", held_out("kl_per_token"), 3)
CLIPPED = Column("`clip_fraction`", last_steps("clip_fraction"), 3)
ENDED = Column("`ended_fraction`", held_out("ended_fraction"))
ENTROPY = Column("`entropy`", held_out("entropy"), 3)
SPREAD = Column("`reward_std`", last_steps("reward_std"), 3)
ACCURACY = Column("`value_accuracy`", last_steps("value_accuracy"))
LENGTH = Column("`response_length`", held_out("response_length"), 1)


@dataclass(frozen=True)
class Table:
    """Runs beside each other, each with the flags that it adds to ``BASE``."""

    runs: Mapping[str, str]
    columns: tuple[Column, ...]


GOOD = {"the demo's settings": ""}
TABLES = {
    "frozen": Table({"learning rate 1e-6": "--learning-rate 1e-6", **GOOD}, (GOLD, REWARD, PER_TOKEN, CLIPPED)),
    "runaway": Table(
        {"learning rate 1e-2": "--learning-rate 1e-2 --no-stop-on-alarm", **GOOD}, (GOLD, REWARD, KL, CLIPPED)
    ),
    "cut-off": Table(
        {"`max_new_tokens` 10 (the default)": "--max-new-tokens 10", **GOOD}, (GOLD, REWARD, ENDED, LENGTH)
    ),
    "greedy": Table(
        {"`top_k` 1": "--top-k 1 --samples-per-prompt 4", "`top_k` 0": "--samples-per-prompt 4"},
        (GOLD, REWARD, KL, ENTROPY),
    ),
    "equal-rewards": Table(
        {
            "one of two numbers, nearly always 1": f"--reward {ALIKE}:passes --normalize-rewards batch",
            "graded": f"--reward {ALIKE}:shortness --normalize-rewards batch",
        },
        (SPREAD, LENGTH, KL),
    ),
    "blind-value": Table(
        {"`value_learning_rate` 1e-6": "--value-learning-rate 1e-6", **GOOD}, (ACCURACY, GOLD, REWARD)
    ),
    "eos": Table(
        {
            "`missing_eos_penalty` 0": "--max-new-tokens 24 --missing-eos-penalty 0",
            "`missing_eos_penalty` 1": "--max-new-tokens 24",
        },
        (ENDED, LENGTH, GOLD),
    ),
}


def command(flags: str) -> str:
    """What a row of a table was made with: a flag of its own replaces that of ``BASE``."""
    base = BASE
    for flag in re.findall(r"--[\w-]+", flags):
        base = re.sub(rf" {flag} \S+", "", base)
    return f"{base} {flags}".strip()


def measured(name: str, words: Sequence[str], folder: Path) -> tuple[Rows, Rows, str]:
    """Train, and read the folder: training steps, evaluations, verdict."""
    (folder / ALIKE).write_text(REWARDS, encoding="utf-8")
    words = [f"{folder / ALIKE}{word.removeprefix(ALIKE)}" if word.startswith(ALIKE) else word for word in words]
    made = ["--output-dir", str(folder), "--run-name", name, "--log-to"]
    if run([*words[1:], *made]) != 0:
        raise SystemExit(f"failed: {shlex.join(words)}")
    lines = (folder / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    train, evaluations = ([row for row in rows if row["kind"] == kind] for kind in ("train", "eval"))
    return train, evaluations, overview(folder / name).verdict


def made_table(table: Table, measure: Callable[[str], tuple[Rows, Rows, str]]) -> str:
    """The Markdown of a table, with the commands below it."""
    heads = ["setting", *(column.heading for column in table.columns), "verdict"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * len(table.columns) + "---|"]
    for label, flags in table.runs.items():
        train, evaluations, verdict = measure(command(flags))
        cells = (shown(column.value(train, evaluations), column.digits) for column in table.columns)
        lines.append(f"| {label} | {' | '.join(cells)} | {verdict} |")
    commands = "\n".join(command(flags) for flags in table.runs.values())
    return "\n".join([*lines, "", "```bash", commands, "```"])


def shown(value: float | None, digits: int) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # never -0.000


def markers(name: str) -> tuple[str, str]:
    """What a table stands between."""
    return f"<!-- measured: {name} -->", f"<!-- end: {name} -->"


def main(names: Sequence[str]) -> None:
    """Measure the named tables and put them into the page."""
    done: dict[str, tuple[Rows, Rows, str]] = {}
    with tempfile.TemporaryDirectory() as scratch:

        def measure(line: str) -> tuple[Rows, Rows, str]:
            if line not in done:
                done[line] = measured(f"run-{len(done)}", shlex.split(line), Path(scratch))
            return done[line]

        for name in names:
            text = made_table(TABLES[name], measure)
            print(text, flush=True)
            put_into_page(name, text)


def put_into_page(name: str, table: str) -> None:
    """Replace what stands between the markers of a table."""
    begin, end = markers(name)
    new = f"{begin}\n{table}\n{end}"
    page = re.sub(f"{begin}.*?{end}", lambda _: new, PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:] or list(TABLES))
