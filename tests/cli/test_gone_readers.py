"""A command whose reader has gone (``| true``, ``| head``) ends without a traceback; a training run continues."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ppolm.cli.main import COMMANDS
from tests.warm import NOBODY, start_warm

PROGRAM = [sys.executable, "-c", "from ppolm.cli.main import main; main()"]


def run_unheard(*words: str, stream: str) -> tuple[int, str]:
    """Run with one stream into a pipe that nobody reads; returns the status and the other stream's output."""
    reader, writer = os.pipe()
    os.close(reader)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: writer}
    answer = subprocess.run([*PROGRAM, *words], text=True, check=False, **pipes)  # type: ignore[call-overload]
    os.close(writer)
    return answer.returncode, answer.stderr if stream == "stdout" else answer.stdout


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=str)
def test_help_that_nobody_reads_is_no_error(words: list[str]) -> None:
    assert run_unheard(*words, stream="stdout") == (0, "")


@pytest.mark.parametrize(("words", "status"), [(["trian"], 2), (["train", "--no-such"], 2)])
def test_an_error_that_nobody_reads_keeps_its_status(words: list[str], status: int) -> None:
    assert run_unheard(*words, stream="stderr") == (status, "")


def test_an_error_of_a_command_that_nobody_reads_keeps_its_status() -> None:
    with start_warm("ppolm", "eval", "gone", err=NOBODY) as program:
        assert (program.end(120), program.out) == (1, "")


def test_long_output_that_nobody_reads_ends_quietly() -> None:
    answers = ["--prompts", "embedded:test", "--max-new-tokens", "2", "--json"]
    with start_warm("ppolm", "generate", "--model-name", "embedded", *answers, out=NOBODY) as program:
        assert (program.end(120), program.err) == (0, "")


def test_a_training_goes_on_when_nobody_watches_it_any_more(tmp_path: Path) -> None:
    small = ["--max-steps", "2", "--batch-size", "2", "--minibatch-size", "2", "--max-eval-prompts", "2"]
    words = ["train", "--model-name", "embedded", *small, "--run-name", "run", "--log-to"]
    with start_warm("ppolm", *words, cwd=tmp_path, err=NOBODY) as program:
        assert program.end(120) == 0
        assert "2 PPO steps, finished" in program.out
