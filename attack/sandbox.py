"""Runs one bad input in a sandbox and judges the outcome."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HANG_SECONDS = 60
"""A good answer takes less than one second; the limit allows for busy machines."""
LONGEST_LINE, LONGEST_OUTPUT = 2000, 20_000


class Hang(BaseException):
    """The time of a case is over. Not an Exception, so that no handler in ppolm catches it."""


@dataclass
class Case:
    """One bad input: what to run, and where it may write."""

    action: Callable[[], int | None]
    """Runs a command and returns its exit status."""
    about: str
    """The command, for the report."""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case. ``fault`` is None if it was handled well."""

    fault: str | None
    status: str
    details: str = ""


class Sandbox:
    """A folder with ``in`` (must not change), ``out`` (the working directory) and ``state``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given, self.out = folder, folder / "in", folder / "out"

    def clear(self) -> None:
        """Empty the sandbox."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in (self.given, self.out, self.folder / "state"):
            folder.mkdir(parents=True)

    def state(self) -> dict[str, tuple[int, int]]:
        """Size and modification time of every file that must not change."""
        found = {}
        for root, folders, files in os.walk(self.folder):
            if Path(root) == self.folder:
                folders[:] = [name for name in folders if name not in ("out", "state")]
            folders[:] = [name for name in folders if name != "__pycache__"]  # Python's own, beside a reward function
            for name in files:
                if not name.endswith(("-wal", "-shm")):  # SQLite's, while a store is read
                    about = os.lstat(os.path.join(root, name))
                    found[os.path.join(root, name)] = (about.st_size, about.st_mtime_ns)
        return found


def judge(case: Case, box: Sandbox) -> Verdict:
    """Run a case and check its status, its output and the files around it."""
    before = box.state()
    out, err = io.StringIO(), io.StringIO()
    with _surroundings(case, box, out, err):
        status, crash = _run(case)
    said = out.getvalue() + err.getvalue()
    harmed = sorted(key for key in {*before, *box.state()} if before.get(key) != box.state().get(key))
    fault = crash or _fault(status, err.getvalue(), said) or (f"changed {harmed[0]}" if harmed else None)
    return Verdict(fault, str(status), f"{case.about}\n{err.getvalue()[-3000:]}" if fault else "")


def _run(case: Case) -> tuple[int | None, str | None]:
    try:
        return case.action(), None
    except SystemExit as end:
        return int(end.code) if isinstance(end.code, int) else 0 if end.code is None else 1, None
    except Hang:
        return None, f"hang: more than {HANG_SECONDS} s at {_place()}"
    except BaseException as error:
        traceback.print_exc()
        return None, f"traceback: {type(error).__name__} at {_place()}"


def _place() -> str:
    """The last line of ppolm in the traceback of the current error."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [frame for frame in frames if f"{os.sep}ppolm{os.sep}" in frame.filename]
    last = (ours or frames)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def _fault(status: int | None, err: str, said: str) -> str | None:
    odd = next((letter for letter in said if not letter.isprintable() and letter not in "\n\t"), None)
    if "Traceback (most recent call last)" in said:
        return "traceback in the output"
    if odd is not None:
        return f"control character {odd!r} in the output"
    if status not in (0, 1, 2):
        return f"exit status {status}"
    if status == 1 and sum(line.startswith("error: ") for line in err.splitlines()) != 1:
        return "status 1 without one line that begins with error:"
    longest = max(map(len, err.splitlines()), default=0)
    if longest > LONGEST_LINE or len(err) > LONGEST_OUTPUT:
        return f"a message of {max(longest, len(err))} characters"
    return None


@contextlib.contextmanager
def _surroundings(case: Case, box: Sandbox, out: Any, err: Any) -> Iterator[None]:
    """Set the case's folder, environment, output and timer; everything is restored afterwards."""
    environment, folder, path = dict(os.environ), Path.cwd(), list(sys.path)
    os.environ.update({"XDG_STATE_HOME": str(box.folder / "state"), **case.environment})
    os.chdir(box.out)
    logging.getLogger().handlers.clear()
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS, 1.0)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path


def _ring(*_: Any) -> None:
    raise Hang
