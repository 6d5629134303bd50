"""Programs that tests start warm: forks of a process that has imported everything already.

A process spends far more time on the imports of torch, transformers and peft than on a tiny run. A fork is a process of
its own, with its own memory, signals, folder, environment and end; only its beginning is not that of a new program.
Where the beginning or the size of the process is what a test is about, it starts ``sys.executable`` instead.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

import pytest

ROOT = Path(__file__).resolve().parent.parent
QUIET = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}
SILENT = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""What the command sets for itself before it imports anything: here it is imported before."""
NOBODY = "nobody"
"""Instead of a file: a pipe whose reader has gone."""


class Program:
    """A process that runs, and the files that it prints to."""

    def __init__(self, process: subprocess.Popen[bytes] | BaseProcess, out: str, err: str) -> None:
        self.process, self.streams = process, (out, err)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.end(30)
        for stream in set(self.streams) - {NOBODY}:
            os.unlink(stream)

    @property
    def pid(self) -> int:
        """Its number."""
        assert self.process.pid is not None
        return self.process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self.process.poll() if isinstance(self.process, subprocess.Popen) else self.process.exitcode

    @property
    def out(self) -> str:
        """What it has printed so far to standard output."""
        return "" if self.streams[0] == NOBODY else Path(self.streams[0]).read_text(errors="replace")

    @property
    def err(self) -> str:
        """What it has printed so far to standard error."""
        return "" if self.streams[1] == NOBODY else Path(self.streams[1]).read_text(errors="replace")

    def end(self, seconds: float) -> int:
        """Wait for its end, and return its exit code."""
        until = time.monotonic() + seconds
        while (code := self.code) is None:
            assert time.monotonic() < until, f"still running after {seconds} s:\n{self.out}\n{self.err}"
            time.sleep(0.02)
        return code


def start_warm(
    *words: str | Path,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    out: str | None = None,
    err: str | None = None,
    typed: str = "",
) -> Program:
    """What ``python -m WORDS`` starts. Each stream is a new file, unless it is named; ``typed`` is its input."""
    streams = [stream or new_file() for stream in (out, err)]
    given = dict(os.environ if environment is None else environment)
    process = forks().Process(target=in_fork, args=([str(word) for word in words], streams, str(cwd), given, typed))
    process.start()
    return Program(process, *streams)


def run_warm(*words: str | Path, cwd: Path = ROOT, seconds: float = 400) -> str:
    """The standard output of a program that succeeds."""
    with start_warm(*words, cwd=cwd) as program:
        assert program.end(seconds) == 0, program.err[-4000:]
        return program.out


def new_file() -> str:
    """An empty file."""
    handle, name = tempfile.mkstemp()
    os.close(handle)
    return name


@cache
def forks() -> multiprocessing.context.ForkServerContext:
    """Makes processes that are forks of one with everything imported, which is started once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.warm_imports"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        for name, value in (QUIET | SILENT).items():
            patch.setenv(name, value)
        forkserver.ensure_running()
    return context


def in_fork(words: Sequence[str], streams: Sequence[str], cwd: str, environment: Mapping[str, str], typed: str) -> None:
    """What a fork does: become the program."""
    from tests import warm_program

    for number, stream in enumerate(streams, 1):
        if stream == NOBODY:
            reader, handle = os.pipe()
            os.close(reader)
        else:
            handle = os.open(stream, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    if typed:  # else it is at its end
        sys.stdin = io.StringIO(typed)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    warm_program.main(*words)
