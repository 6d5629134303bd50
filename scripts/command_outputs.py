"""What the commands on a page print: run in a folder like a user's, and cut to what the page has room for.

A block of commands in ``bash`` that is followed by ``<!-- printed -->`` and a block of ``text`` shows what they print.
``<!-- printed: 6 ... 3 -->`` keeps the first six and the last three lines. What a command is told at the terminal is
piped into it: ``printf 'a line\\n' | ppolm ...``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ppolm.embedded import EXAMPLE, EXAMPLE_RUN

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"```bash\n(?P<commands>.*?)```(?:\n\n<!-- printed(?:: (?P<head>\d+) \.\.\. (?P<tail>\d+))? -->\n"
    r"```text\n(?P<shown>.*?)```)?",
    re.DOTALL,
)
PIPED = re.compile(r"printf '([^'%]*)' \| ")
QUOTED = re.compile(r"\$'((?:[^'\\]|\\.)*)'")
KEY = re.compile(r"key=\S+")
"""Who has the key of a page may judge there."""
HOME = "/home/ann"
"""What pages call the folder that commands are run in."""
SERVES = ("studio",)
"""Commands that go on until Ctrl-C: they get it once they have said where they are."""
Run = Callable[[list[str], Path, str], str]
"""Runs the words of a command in a folder, with an input; returns what it prints to both streams."""


@dataclass(frozen=True)
class Block:
    """Commands of a page, and what it shows of their output."""

    commands: tuple[str, ...]
    head: int | None
    tail: int | None
    shown: str | None


def blocks(page: str) -> list[Block]:
    """The blocks of commands of a page, in order."""
    return [_block(found) for found in BLOCK.finditer(page)]


def _block(found: re.Match[str]) -> Block:
    commands = tuple(found["commands"].replace("\\\n", " ").splitlines())
    head, tail = (None if found[name] is None else int(found[name]) for name in ("head", "tail"))
    return Block(commands, head, tail, found["shown"])


@dataclass(frozen=True)
class Sandbox:
    """A folder as it is after ``ppolm examples .``, with the run that comes with ppolm in it."""

    folder: Path
    run: Run

    def fill(self) -> None:
        """Copy everything into it."""
        for name in ("configs", "examples"):
            shutil.copytree(ROOT / name, self.folder / name)
        shutil.copytree(EXAMPLE_RUN, self.folder / "runs" / EXAMPLE_RUN.name)

    def printed(self, block: Block) -> str:
        """What the commands of a block print together."""
        text = "".join(self.run(words_of(line)[1:], self.folder, typed_into(line)) for line in block.commands)
        for place in sorted({str(self.folder.resolve()), str(self.folder)}, key=len, reverse=True):
            text = text.replace(place, HOME)
        text = KEY.sub("key=...", text.replace(str(EXAMPLE), ".../ppolm/embedded/example"))
        return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())


def words_of(line: str) -> list[str]:
    """The words of a command as bash takes them, also of $'...' with its line breaks; without what is piped into it."""
    plain = QUOTED.sub(lambda found: shlex.quote(found[1].encode().decode("unicode_escape")), PIPED.sub("", line))
    return shlex.split(plain)


def typed_into(line: str) -> str:
    """What ``printf`` pipes into a command; nothing without it."""
    found = PIPED.match(line)
    return found[1].encode().decode("unicode_escape") if found else ""


def shortened(text: str, head: int | None, tail: int | None) -> str:
    """The first and the last lines, with a line of dots between them."""
    lines = text.splitlines(keepends=True)
    if head is None or tail is None or len(lines) <= head + tail + 1:
        return text
    return "".join([*lines[:head], "...\n", *lines[len(lines) - tail :]])


def with_outputs(page: str, sandbox: Sandbox) -> str:
    """The page with what its commands print now."""

    def again(found: re.Match[str]) -> str:
        block = _block(found)
        text = sandbox.printed(block)
        if block.shown is None:
            return found[0]
        before, after = found.start("shown") - found.start(), found.end("shown") - found.start()
        return found[0][:before] + shortened(text, block.head, block.tail) + found[0][after:]

    return BLOCK.sub(again, page)


def run_process(words: list[str], folder: Path, typed: str) -> str:
    """A command as a process of its own."""
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as given:
        given.write(typed)
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "ppolm", *words],
            cwd=folder,
            stdout=printed,
            stderr=subprocess.STDOUT,
            stdin=given,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "100"},
        )
        if words[0] in SERVES:
            for _ in wait_for("http", lambda: _read(printed)):
                process.poll()
            process.send_signal(signal.SIGINT)
        code = process.wait()
        text = _read(printed)
    if code != 0 and words[0] not in SERVES:
        raise SystemExit(f"exit status {code}: ppolm {shlex.join(words)}\n{text}")
    return text


def wait_for(text: str, read: Callable[[], str], seconds: float = 120) -> Iterator[None]:
    """Goes on until a text has been printed."""
    until = time.monotonic() + seconds
    while text not in read():
        if time.monotonic() > until:
            raise TimeoutError(f"{text!r} was not printed within {seconds:g} s: {read()}")
        yield
        time.sleep(0.1)


def _read(file: IO[str]) -> str:
    """All of a file that a process still writes to."""
    return os.pread(file.fileno(), 10_000_000, 0).decode(errors="replace")
