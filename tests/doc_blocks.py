"""The fenced blocks of every page, the commands in them, and what stands in the way of running some of them.

A new page needs nothing here: its commands and its Python run as they stand, in a folder with a model, prompts and runs
(``tests/doc_folder.py``). What cannot run is listed below with the reason, and its flags are checked all the same.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.command_outputs import PIPED
from tests.conftest import ROOT

FENCED = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[^\n]*)\n(?P<text>.*?)^ *(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
LANGUAGES = frozenset({"bash", "console", "python", "sql", "yaml", "json", "jsonl", "csv", "text", ""})
DOCS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))
PAGES = ("README.md", "CONTRIBUTING.md", *DOCS)


def _is_of_the_reference(page: str) -> bool:
    """Whether scripts/api_page.py writes signatures into this page."""
    return page.startswith("docs/api-") and "```python" in (ROOT / page).read_text(encoding="utf-8")


RUN_ELSEWHERE = {
    ("README.md", "python"): "tests/whole/test_readme.py",
    ("docs/asking-tables.md", "python"): "tests/whole/test_asking_tables.py",
    ("docs/asking-tables.md", "sql"): "tests/whole/test_asking_tables.py",
    ("docs/callbacks.md", "python"): "tests/hooks/test_callbacks_page.py",
    ("docs/chat.md", "bash"): "tests/whole/test_exporting_pages.py",
    ("docs/data-formats.md", "json"): "tests/data/test_data_check_command.py",
    ("docs/data-formats.md", "jsonl"): "tests/data/test_data_check_command.py",
    ("docs/data-formats.md", "csv"): "tests/data/test_data_check_command.py",
    ("docs/exporting.md", "bash"): "tests/whole/test_exporting_pages.py",
    ("docs/scaling.md", "text"): "tests/planning/test_scaling_page.py",
    **{(page, "bash"): "tests/whole/test_command_pages.py" for page in DOCS if page.startswith("docs/commands/")},
    **{(page, "python"): "tests/whole/test_public_face.py" for page in DOCS if _is_of_the_reference(page)},
}
"""Blocks of a page that a test of its own reads: that test's file."""

NOT_RUN = {
    # page, how the command (or the first line of other code) begins: why it cannot run in a test
    ("CONTRIBUTING.md", "def td_errors"): "shows how to write a docstring",
    (
        "docs/engines.md",
        "ppolm train --model-name Qwen/",
    ): "a model of the Hub; tests/engines/test_mlx_runs.py",
    ("docs/engines-vllm.md", "ppolm train"): "needs vLLM servers: make test-vllm",
    ("docs/feedback.md", "ppolm feedback label"): "asks a person: tests/cli/test_feedback_label.py",
    (
        "docs/feedback.md",
        "ppolm train --model-name embedded --reward human",
    ): "waits for a person: tests/rewards/test_human_live.py",
    ("docs/feedback.md", "ppolm feedback import ann.jsonl"): "an example of made-up people, whose file is not shown",
    ("docs/feedback.md", "ppolm feedback stats"): "the same store, and one that needs a PostgreSQL server",
    ("docs/feedback.md", "ppolm feedback export majority.csv"): "the same store",
    ("docs/feedback.md", "ppolm reward --model-name path/to/model --data majority.csv"): "the same store",
    ("docs/feedback.md", "ppolm feedback study better"): "runs/a is made up: tests/studies/test_from_policies.py",
    ("docs/feedback.md", "ppolm train --feedback-store"): "waits for people, in a PostgreSQL server",
    ("docs/installation.md", "py -m venv .venv"): "commands of Windows: tests/whole/test_windows.py",
    (
        "docs/memory.md",
        "ppolm train --model-name my-model",
    ): "the reader's model: tests/estimate/test_estimate.py",
    ("docs/processes.md", "ppolm train"): "several processes: tests/ranks/test_commands.py",
    (
        "docs/reward-models.md",
        "ppolm ",
    ): "minutes at the size whose figures are shown: tests/cli/test_reward_command.py",
    ("docs/studio.md", "ppolm studio"): "serves until it is stopped: tests/cli/test_studio_command.py",
    ("docs/tutorial.md", "ppolm chat"): "talks to a person: tests/whole/test_exporting_pages.py",
    ("docs/tutorial.md", "ppolm feedback label --study taste"): "asks a person: tests/cli/test_feedback_label.py",
    (
        "docs/tutorial.md",
        "from transformers import",
    ): "loads what the commands before it have made: tests/export/test_export_command.py",
    ("docs/trust.md", "ppolm train"): "needs a reward server or people: tests/config/test_secrets.py",
}
"""Commands, and other code, that no test runs as it stands. The flags of commands are checked all the same."""

PROGRAMS = {
    "accelerate": "starts several processes: tests/ranks; the flags of ppolm are checked",
    "cat": "writes the file that is shown",
    "duckdb": "the reader's own program",
    "export": "sets a variable of the reader's shell",
    "jupyter": "opens a browser: tests/whole/test_notebook.py runs the notebook",
    "make": "targets are checked to exist; what they start is tested by itself",
    "pip": "installs from a package index",
    "py": "the launcher on Windows: tests/whole/test_windows.py",
    "python": "scripts and tools of a checkout are checked to exist; each has its own tests or takes minutes",
    "python3": "makes an environment",
    "tensorboard": "serves until it is stopped",
    "torchrun": "starts several processes: tests/ranks; the flags of ppolm are checked",
    "uv": "installs from a package index; tests/whole/test_readme.py checks an option",
    "vllm": "needs vLLM: make test-vllm",
}
"""Programs other than ppolm that blocks may start, and why no test runs them."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def commands(self) -> Iterator[list[str]]:
        """The words of each command: every line of a bash block, and lines of other ones that begin with a prompt."""
        lines = self.text.replace("\\\n", " ").splitlines()
        end = ""
        for line in lines:
            if end:  # inside of a file that `cat` writes
                end = "" if line.strip() == end else end
                continue
            begins = re.match(r"\$ (?=\S)", line)
            if self.language != "bash" and not begins:
                continue
            here = re.search(r"<<'(\w+)'", line)
            end = here[1] if here else ""
            words = _words(line[begins.end() :] if begins else line)
            if words:
                yield words


def _words(line: str) -> list[str]:
    """The words of a line of shell, without assignments and folders before the command, and without what is typed
    into it or follows a pipe."""
    ansi = re.sub(r"\$'([^']*)'", lambda found: shlex.quote(found[1].replace("\\n", "\n")), PIPED.sub("", line))
    words = shlex.split(ansi.partition(" | ")[0], comments=True)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    return [Path(words[0]).name, *words[1:]] if words else []


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for block in FENCED.finditer(text):
        indent = len(block["indent"])
        inside = "".join(line[indent:] if line.strip() else line for line in block["text"].splitlines(keepends=True))
        found.append(Block(page, text.count("\n", 0, block.start()) + 1, block["language"].strip(), inside))
    return found


def without_run(page: str, code: str) -> str | None:
    """Why this code of a page is not run; None if it is."""
    found = (why for (where, begins), why in NOT_RUN.items() if where == page and code.startswith(begins))
    return next(found, None)


def arguments_of_ppolm(words: list[str]) -> list[str] | None:
    """What follows ``ppolm`` in a command, also in one that starts several processes; None for other programs."""
    if words[0] == "ppolm":
        return words[1:]
    for number, word in enumerate(words):
        if word == "ppolm" and words[number - 1] in ("-m", "--module"):
            return words[number + 1 :]
    return None
